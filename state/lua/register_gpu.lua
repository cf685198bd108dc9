-- A GPU appears, or appears again; a lease on it stays, and so does what an operator or its health decided. Its samples
-- are of an earlier worker's life.
-- KEYS  1 GPU  2 index of GPUs  3 idle GPUs  4 events
-- ARGV  1 gpu  2 fields as JSON
-- Returns the GPU's status
local t = now()
local before = redis.call('HGET', KEYS[1], 'status')
put(KEYS[1], ARGV[2])
redis.call('HSET', KEYS[1], 'heartbeat_at', clock(t))
redis.call('HDEL', KEYS[1], 'offline', 'leaving', 'health', 'sampled_at')
if not before then
  redis.call('HSET', KEYS[1], 'registered_at', clock(t), 'fence', 0)
  redis.call('ZADD', KEYS[2], clock(t), ARGV[1])
end
if not before or before == 'offline' then
  emit(KEYS[4], 'gpu.registered', '', ARGV[1], cjson.encode({gpu_id = ARGV[1]}))
end
return settle(KEYS[1], KEYS[3], KEYS[4], ARGV[1], t, 'registered')
