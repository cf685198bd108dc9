-- Begin a retest: one more run of an experiment's code, under an id of its own.
-- KEYS  1 experiment  2 retest  3 status registered  4 same of its category  5 open  6 tag  7 events
-- ARGV  1 experiment  2 retest  3 number  4 tag  5 retest as JSON  6 how many retests were begun before  7 patience in
--       seconds  8 seed  9 trace  10 seconds of a run to set aside from the tag's budget, or empty
-- Returns {ok | stale} | {exhausted, gpu_seconds or runs, limit, spent, reserved, needed}
if (redis.call('HGET', KEYS[1], 'retests') or '0') ~= ARGV[6] then return {'stale'} end
local short = ARGV[10] ~= '' and shortage(KEYS[6], ms(ARGV[10]), 1)
if short then return short end
local t = now()
redis.call('HINCRBY', KEYS[1], 'retests', 1)
put(KEYS[2], ARGV[5])
redis.call('HSET', KEYS[2], 'registered_at', clock(t))
redis.call('ZADD', KEYS[3], ARGV[3], ARGV[2])
redis.call('ZADD', KEYS[4], ARGV[3], ARGV[2])
redis.call('ZADD', KEYS[5], clock(t + tonumber(ARGV[7])), ARGV[2])
emit(KEYS[7], 'experiment.retesting', ARGV[4], ARGV[1],
  cjson.encode({experiment_id = ARGV[1], retest_id = ARGV[2], seed = tonumber(ARGV[8])}), ARGV[9])
if ARGV[10] ~= '' then reserve(KEYS[6], KEYS[7], ARGV[4], KEYS[2], ms(ARGV[10])) end
return {'ok'}
