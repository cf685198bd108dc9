-- Let the clock fire a function again, from its next tick on.
-- KEYS  1 schedule  2 events
-- ARGV  1 function
-- Returns when it had been paused, or empty where it was not
local since = redis.call('HGET', KEYS[1], 'paused_at')
if not since then return '' end
local t = now()
redis.call('HDEL', KEYS[1], 'paused_at', 'paused_reason')
redis.call('HSET', KEYS[1], 'until', clock(t))
emit(KEYS[2], 'cron.resumed', '', ARGV[1], cjson.encode({['function'] = ARGV[1], paused_s = t - tonumber(since)}))
return since
