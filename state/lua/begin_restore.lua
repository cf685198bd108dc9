-- Mark a lab as half restored: nobody opens it from now on. Only an empty lab, or one that was left half restored.
-- KEYS  1 restoring  2 schema  3 identity  4 tags  5 processes
-- ARGV  1 token  2 seconds that it may be silent  3 the file
-- Returns begun | again (what an earlier restore left has to go first) | busy | taken
local t = now()
local before = redis.call('HGET', KEYS[1], 'until')
if before and tonumber(before) > t then return 'busy' end
if not before and redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[4], KEYS[5]) > 0 then return 'taken' end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'until', clock(t + tonumber(ARGV[2])), 'file', ARGV[3])
return before and 'again' or 'begun'
