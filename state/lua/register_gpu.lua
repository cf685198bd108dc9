-- A GPU appears, or appears again. A lease on it stays, and what an operator or its health decided; its samples are of
-- an earlier worker. Without an owner the lab's own keeper registers it: the GPU is the lab's from now on.
-- parts: gpu owned_gpus
-- keys: gpu gpus
-- args: gpu_id fields* owner? of_agent? of_any? most_of_owner? keeper? replaced?
-- Without `of_any` a known GPU has to be this owner's; its owner may have `most_of_owner`. A GPU that is not offline
-- changes its keeper only from `replaced`, which has ended.
-- returns: {other} | {full} | {served} | {ok, Redis' clock, fields of the GPU ...}
local t = now()
local before = redis.call('HMGET', K.gpu, 'status', 'owner', 'of_agent', 'keeper', 'offline')
local is_new = not before[1]
if not is_new and not A.of_any and (before[2] ~= A.owner or (before[3] or nil) ~= A.of_agent) then return {'other'} end
if is_new and A.most_of_owner and owned_gpus(A.owner, A.of_agent) >= tonumber(A.most_of_owner) then return {'full'} end
local keeper = before[4]
if A.keeper and keeper and keeper ~= A.keeper and keeper ~= A.replaced and not before[5] then return {'served'} end
redis.call('HSET', K.gpu, 'heartbeat_at', clock(t), unpack(A.fields))
redis.call('HDEL', K.gpu, 'offline', 'leaving', 'health', 'sampled_at')
if not A.owner then
  redis.call('HDEL', K.gpu, 'owner', 'of_agent')
  if before[2] then count_gpu(before[2], before[3], -1) end
end
if is_new then
  redis.call('HSET', K.gpu, 'registered_at', clock(t), 'fence', 0)
  if A.owner then
    redis.call('HSET', K.gpu, 'owner', A.owner)
    count_gpu(A.owner, A.of_agent, 1)
  end
  if A.of_agent then redis.call('HSET', K.gpu, 'of_agent', A.of_agent) end
  redis.call('ZADD', K.gpus, clock(t), A.gpu_id)
end
if is_new or before[1] == 'offline' then
  emit('gpu.registered', '', A.gpu_id, cjson.encode({gpu_id = A.gpu_id}))
end
derive_status(K.gpu, A.gpu_id, t, 'registered')
return {'ok', clock(t), unpack(redis.call('HGETALL', K.gpu))}
