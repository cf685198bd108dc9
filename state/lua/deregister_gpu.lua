-- Forget a GPU that nobody holds.
-- KEYS  1 GPU  2 index of GPUs  3 idle GPUs  4 events
-- ARGV  1 gpu
-- Returns ok | unknown | held
if redis.call('EXISTS', KEYS[1]) == 0 then return 'unknown' end
if redis.call('HEXISTS', KEYS[1], 'holder') == 1 then return 'held' end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
emit(KEYS[4], 'gpu.offline', '', ARGV[1], cjson.encode({gpu_id = ARGV[1], reason = 'deregistered'}))
return 'ok'
