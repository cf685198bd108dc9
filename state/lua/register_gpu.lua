-- A GPU appears, or appears again. A lease on it stays, and what an operator or its health decided; its samples are of
-- an earlier worker. Without an owner the lab's own keeper registers it: the GPU is the lab's from now on.
-- parts: gpu
-- keys: gpu gpus
-- args: gpu_id fields* owner? owner_before?
-- `owner_before`: a known GPU has to be this owner's.
-- returns: {other} | {ok, Redis' clock, fields of the GPU ...}
local t = now()
local before = redis.call('HMGET', K.gpu, 'status', 'owner')
if before[1] and A.owner_before and before[2] ~= A.owner_before then return {'other'} end
redis.call('HSET', K.gpu, 'heartbeat_at', clock(t), unpack(A.fields))
redis.call('HDEL', K.gpu, 'offline', 'leaving', 'health', 'sampled_at')
if not A.owner then redis.call('HDEL', K.gpu, 'owner') end
if not before[1] then
  redis.call('HSET', K.gpu, 'registered_at', clock(t), 'fence', 0)
  if A.owner then redis.call('HSET', K.gpu, 'owner', A.owner) end
  redis.call('ZADD', K.gpus, clock(t), A.gpu_id)
end
if not before[1] or before[1] == 'offline' then
  emit('gpu.registered', '', A.gpu_id, cjson.encode({gpu_id = A.gpu_id}))
end
derive_status(K.gpu, A.gpu_id, t, 'registered')
return {'ok', clock(t), unpack(redis.call('HGETALL', K.gpu))}
