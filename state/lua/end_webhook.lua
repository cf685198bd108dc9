-- Send a receiver nothing more: forget it, or keep it as disabled (with a reason) for operators to see.
-- parts: events
-- keys: webhooks webhook bindings redriven deliveries
-- args: id group events_binding redriven_binding reason? event_data
-- returns: ok | gone
if not redis.call('ZSCORE', K.webhooks, A.id) then return 'gone' end
if A.reason and redis.call('HEXISTS', K.webhook, 'disabled_at') == 1 then return 'gone' end
redis.call('ZREM', K.bindings, A.events_binding, A.redriven_binding)
if redis.call('EXISTS', K.events) == 1 then redis.call('XGROUP', 'DESTROY', K.events, A.group) end
redis.call('DEL', K.redriven)
if A.reason then
  redis.call('HSET', K.webhook, 'disabled_at', clock(now()), 'disabled_reason', A.reason)
else
  redis.call('ZREM', K.webhooks, A.id)
  redis.call('DEL', K.webhook)
  redis.call('DEL', K.deliveries)
end
emit(A.reason and 'webhook.disabled' or 'webhook.removed', '', A.id, A.event_data)
return 'ok'
