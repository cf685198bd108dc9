-- The holder gives its GPU back; not while a worker has the experiment on it.
-- parts: gpu
-- keys: gpu experiment leases
-- args: gpu_id id fence? proven?
-- Without a fence any lease of the holder ends; `proven`: nothing of a run is left on the GPU.
-- returns: ok | free | other | busy
local g = redis.call('HMGET', K.gpu, 'holder', 'fence', 'runner')
if not g[1] then return 'free' end
if g[1] ~= A.id or A.fence and g[2] ~= A.fence then return 'other' end
local e = redis.call('HMGET', K.experiment, 'status', 'fence')
if (e[1] == 'leased' or e[1] == 'running') and e[2] == g[2] then return 'busy' end
redis.call('HDEL', K.gpu, 'holder', 'leased_at', 'lease_expires_at', 'deadline', 'runner')
redis.call('ZREM', K.leases, A.gpu_id)
if A.proven then
  redis.call('HDEL', K.gpu, 'footprint')
elseif g[3] then
  redis.call('HSET', K.gpu, 'unproven', 'true')  -- a worker ran on it: its keeper has to look
end
derive_status(K.gpu, A.gpu_id, now(), 'released')
return 'ok'
