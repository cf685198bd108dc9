-- Replace a tag's policy, if it still is the version that was read.
-- KEYS  1 policy
-- ARGV  1 expected version  2 policy as JSON text
-- Returns the new version | stale
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[1] then return 'stale' end
redis.call('HSET', KEYS[1], 'values', ARGV[2])
return tostring(redis.call('HINCRBY', KEYS[1], 'version', 1))
