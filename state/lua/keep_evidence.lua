-- Keep a result that came too late to count, unless there are enough of them.
-- KEYS  1 evidence
-- ARGV  1 digest  2 result as JSON  3 how many are kept
-- Returns kept | known | full
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 'known' end
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then return 'full' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 'kept'
