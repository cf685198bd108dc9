-- Note how a delivery to a receiver went: for operators, no decision reads it.
-- keys: webhooks deliveries
-- args: id status? error
-- returns: ok | gone
if not redis.call('ZSCORE', K.webhooks, A.id) then return 'gone' end
redis.call('HINCRBY', K.deliveries, A.error == '' and 'delivered' or 'failed', 1)
redis.call('HSET', K.deliveries, 'last_at', clock(now()), 'last_status', A.status or '', 'last_error', A.error)
return 'ok'
