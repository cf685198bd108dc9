-- Register a receiver of events; it gets every event from now on.
-- parts: events
-- keys: webhooks webhook bindings redriven
-- args: id fields group events_binding redriven_binding most event_data
-- returns: ok | full
if redis.call('ZCARD', K.webhooks) >= tonumber(A.most) then return 'full' end
local t = clock(now())
emit('webhook.added', '', A.id, A.event_data)
redis.call('XGROUP', 'CREATE', K.events, A.group, '$')
redis.call('XGROUP', 'CREATE', K.redriven, A.group, '0', 'MKSTREAM')
redis.call('ZADD', K.bindings, t, A.events_binding, t, A.redriven_binding)
put(K.webhook, A.fields)
redis.call('HSET', K.webhook, 'created_at', t)
redis.call('ZADD', K.webhooks, t, A.id)
return 'ok'
