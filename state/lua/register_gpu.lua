-- A GPU appears, or appears again; a lease on it stays.
-- KEYS  1 GPU  2 index of GPUs  3 idle GPUs  4 events
-- ARGV  1 gpu  2 fields as JSON
-- Returns the GPU's status
local t = clock(now())
local g = redis.call('HMGET', KEYS[1], 'status', 'holder', 'drained_by')
if g[3] == 'shutdown' then
  -- It left in order and is back; a lease that it still had goes on.
  redis.call('HDEL', KEYS[1], 'drained_by')
  if g[1] == 'draining' then g[1] = 'offline' end
  g[3] = false
end
put(KEYS[1], ARGV[2])
redis.call('HSET', KEYS[1], 'heartbeat_at', t)
if not g[1] then
  redis.call('HSET', KEYS[1], 'registered_at', t, 'fence', 0)
  redis.call('ZADD', KEYS[2], t, ARGV[1])
end
local status = g[1]
if not status or status == 'offline' then
  status = g[2] and 'training' or (g[3] and 'draining' or 'idle')
  redis.call('HSET', KEYS[1], 'status', status)
  emit(KEYS[4], 'gpu.registered', '', ARGV[1], cjson.encode({gpu_id = ARGV[1], status = status}))
  if status == 'idle' then
    redis.call('HSET', KEYS[1], 'idle_since', t)
    redis.call('ZADD', KEYS[3], t, ARGV[1])
    emit(KEYS[4], 'gpu.idle', '', ARGV[1], cjson.encode({gpu_id = ARGV[1]}))
  end
end
return status
