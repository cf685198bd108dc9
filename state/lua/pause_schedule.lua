-- Stop the clock from firing a function.
-- parts: events
-- keys: schedule
-- args: function reason
-- returns: when it was paused
local since = redis.call('HGET', K.schedule, 'paused_at')
if since then return since end
local t = now()
redis.call('HSET', K.schedule, 'paused_at', clock(t), 'paused_reason', A.reason)
emit('cron.paused', '', A['function'], cjson.encode({['function'] = A['function'], reason = A.reason}))
return clock(t)
