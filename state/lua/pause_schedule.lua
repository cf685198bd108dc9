-- Let the clock fire a function no more.
-- KEYS  1 schedule  2 events
-- ARGV  1 function  2 reason
-- Returns when it was paused
local since = redis.call('HGET', KEYS[1], 'paused_at')
if since then return since end
local t = now()
redis.call('HSET', KEYS[1], 'paused_at', clock(t), 'paused_reason', ARGV[2])
emit(KEYS[2], 'cron.paused', '', ARGV[1], cjson.encode({['function'] = ARGV[1], reason = ARGV[2]}))
return clock(t)
