-- A sweep begins. After a gap (Redis was away, the machine slept) everybody looks silent who could not be heard:
-- they get a grace in which nobody is given up.
-- KEYS  1 sweep
-- ARGV  1 longest gap in seconds  2 grace in seconds
-- Returns 1 during a grace, else 0
local t = now()
local s = redis.call('HMGET', KEYS[1], 'at', 'grace_until')
-- A clock that was set back would make a grace of hours of it.
local grace = math.min(tonumber(s[2] or '0'), t + tonumber(ARGV[2]))
if s[1] and t - tonumber(s[1]) > tonumber(ARGV[1]) then
  grace = t + tonumber(ARGV[2])
end
redis.call('HSET', KEYS[1], 'at', clock(t), 'grace_until', clock(grace))
return t < grace and 1 or 0
