-- A sweep begins. After a gap (Redis was away, the machine slept) everybody looks silent who could not be heard: for
-- `grace_s` from then on no lease is broken.
-- keys: sweep
-- args: longest_gap_s grace_s
-- returns: 1 during a grace, else 0
local t = now()
local s = redis.call('HMGET', K.sweep, 'at', 'grace_until')
-- A clock that was set back must not prolong the grace by hours.
local grace = math.min(tonumber(s[2] or '0'), t + tonumber(A.grace_s))
if s[1] and t - tonumber(s[1]) > tonumber(A.longest_gap_s) then grace = t + tonumber(A.grace_s) end
redis.call('HSET', K.sweep, 'at', clock(t), 'grace_until', clock(grace))
return t < grace and 1 or 0
