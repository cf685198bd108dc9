-- Create a tag with its strategy and its policy.
-- KEYS  1 tag  2 index of tags  3 strategy  4 policy  5 events
-- ARGV  1 name  2 tag as JSON  3 strategy as JSON  4 policy as JSON  5 event data
-- Returns ok | exists
if redis.call('EXISTS', KEYS[1]) == 1 then return 'exists' end
local t = clock(now())
put(KEYS[1], ARGV[2])
redis.call('HSET', KEYS[1], 'created_at', t)
redis.call('ZADD', KEYS[2], t, ARGV[1])
put(KEYS[3], ARGV[3])
redis.call('HSET', KEYS[3], 'updated_at', t)
put(KEYS[4], ARGV[4])
emit(KEYS[5], 'tag.created', ARGV[1], ARGV[1], ARGV[5])
return 'ok'
