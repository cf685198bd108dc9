-- A GPU is alive. With `renews` the lease of its holder is renewed, and the holder's agent was heard of, too; `stops`: the
-- holder is told to stop.
-- parts: gpu lease
-- keys: open gpu_history
-- args: gpu_id health? measured every_s most holder? fence renews? stops? extended_s? patience_s?
-- `measured` are the numbers of `health` that its history keeps, at most one entry in `every_s` and `most` of them.
-- returns: the GPU's status | unknown | stale
local g = redis.call('HMGET', K.gpu, 'status', 'holder', 'fence', 'lease_expires_at')
if not g[1] then return 'unknown' end
if (g[2] or nil) ~= A.holder or g[3] ~= A.fence then return 'stale' end
local t = now()
redis.call('HSET', K.gpu, 'heartbeat_at', clock(t))
redis.call('HDEL', K.gpu, 'offline')
if A.health then
  redis.call('HSET', K.gpu, 'health', A.health, 'sampled_at', clock(t))
  local newest = redis.call('LRANGE', K.gpu_history, -1, -1)[1]
  if not newest or t - cjson.decode(newest)[1] >= tonumber(A.every_s) then
    redis.call('RPUSH', K.gpu_history, string.format('[%d,%s]', t, A.measured))
    redis.call('LTRIM', K.gpu_history, -tonumber(A.most), -1)
  end
end
if A.renews then
  if A.stops then hasten(t, A.extended_s) end
  prolong(t, A.gpu_id, A.extended_s, g[4])
  redis.call('ZADD', K.open, 'XX', clock(t + tonumber(A.patience_s)), A.holder)
end
return derive_status(K.gpu, A.gpu_id, t, 'heard of again')
