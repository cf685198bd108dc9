-- A GPU appears, or appears again; a lease on it stays, and so does what an operator or its health decided. Its samples
-- are of an earlier worker's life. What the lab's own keeper (no owner) brings is the lab's, whoever had taken its name.
-- KEYS  1 GPU  2 index of GPUs  3 idle GPUs  4 events
-- ARGV  1 gpu  2 fields as JSON  3 owner, or ''  4 any | own: whether a known GPU has to be the owner's
-- Returns the GPU's status | other
local t = now()
local before = redis.call('HGET', KEYS[1], 'status')
if before and ARGV[4] == 'own' and (redis.call('HGET', KEYS[1], 'owner') or '') ~= ARGV[3] then return 'other' end
put(KEYS[1], ARGV[2])
redis.call('HSET', KEYS[1], 'heartbeat_at', clock(t))
redis.call('HDEL', KEYS[1], 'offline', 'leaving', 'health', 'sampled_at')
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], 'owner') end
if not before then
  redis.call('HSET', KEYS[1], 'registered_at', clock(t), 'fence', 0)
  if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'owner', ARGV[3]) end
  redis.call('ZADD', KEYS[2], clock(t), ARGV[1])
end
if not before or before == 'offline' then
  emit(KEYS[4], 'gpu.registered', '', ARGV[1], cjson.encode({gpu_id = ARGV[1]}))
end
return settle(KEYS[1], KEYS[3], KEYS[4], ARGV[1], t, 'registered')
