-- A GPU is alive. With `lease_s` the lease of its holder is renewed, and the holder's agent was heard of, too.
-- parts: gpu
-- keys: gpu leases open
-- args: gpu_id health? holder? fence lease_s? patience_s?
-- returns: the GPU's status | unknown | stale
local g = redis.call('HMGET', K.gpu, 'status', 'holder', 'fence', 'lease_expires_at')
if not g[1] then return 'unknown' end
if (g[2] or nil) ~= A.holder or g[3] ~= A.fence then return 'stale' end
local t = now()
redis.call('HSET', K.gpu, 'heartbeat_at', clock(t))
redis.call('HDEL', K.gpu, 'offline')
if A.health then redis.call('HSET', K.gpu, 'health', A.health, 'sampled_at', clock(t)) end
if A.lease_s then
  local expiry = clock(math.max(t + tonumber(A.lease_s), tonumber(g[4] or '0')))
  redis.call('HSET', K.gpu, 'lease_expires_at', expiry)
  redis.call('ZADD', K.leases, expiry, A.gpu_id)
  redis.call('ZADD', K.open, 'XX', clock(t + tonumber(A.patience_s)), A.holder)
end
return derive_status(K.gpu, A.gpu_id, t, 'heard of again')
