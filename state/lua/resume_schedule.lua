-- Let the clock fire a function again, from its next scheduled time on.
-- parts: events
-- keys: schedule
-- args: function
-- returns: when it had been paused, or empty where it was not
local since = redis.call('HGET', K.schedule, 'paused_at')
if not since then return '' end
local t = now()
redis.call('HDEL', K.schedule, 'paused_at', 'paused_reason')
redis.call('HSET', K.schedule, 'until', clock(t))
emit('cron.resumed', '', A['function'], cjson.encode({['function'] = A['function'], paused_s = t - tonumber(since)}))
return since
