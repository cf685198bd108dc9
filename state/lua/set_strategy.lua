-- Replace a tag's strategy, if it still is the one the decision was made on.
-- KEYS  1 strategy  2 events
-- ARGV  1 tag  2 expected version  3 strategy as JSON  4 event data, or empty where the mode stays
-- Returns ok | stale
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[2] then return 'stale' end
put(KEYS[1], ARGV[3])
redis.call('HSET', KEYS[1], 'updated_at', clock(now()))
redis.call('HINCRBY', KEYS[1], 'version', 1)
if ARGV[4] ~= '' then emit(KEYS[2], 'strategy.changed', ARGV[1], ARGV[1], ARGV[4]) end
return 'ok'
