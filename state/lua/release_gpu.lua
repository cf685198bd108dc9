-- The holder gives its GPU back.
-- KEYS  1 GPU  2 idle GPUs  3 leases  4 events
-- ARGV  1 gpu  2 experiment  3 fence, or empty for any
-- Returns ok | free | other
local g = redis.call('HMGET', KEYS[1], 'holder', 'fence', 'drained_by', 'status')
if not g[1] then return 'free' end
if g[1] ~= ARGV[2] or (ARGV[3] ~= '' and g[2] ~= ARGV[3]) then return 'other' end
local t = clock(now())
redis.call('HDEL', KEYS[1], 'holder', 'leased_at', 'lease_expires_at', 'runner')
redis.call('ZREM', KEYS[3], ARGV[1])
local status = g[4]
if status == 'training' then status = g[3] and 'draining' or 'idle' end
redis.call('HSET', KEYS[1], 'status', status)
if status == 'idle' then
  redis.call('HSET', KEYS[1], 'idle_since', t)
  redis.call('ZADD', KEYS[2], t, ARGV[1])
  emit(KEYS[4], 'gpu.idle', '', ARGV[1], cjson.encode({gpu_id = ARGV[1]}))
end
return 'ok'
