-- Have a registered experiment trained, its run set aside from the tag's budget: it waits in the queue, or has the GPU that
-- it holds. Where that lease is `returned`, the GPU is free again: the tag is paused, and it would stand idle for as long.
-- parts: queue books listing gpu waiting
-- keys: experiment attempts open starting held_gpu? leases rivals*
-- args: baseline? fence run_s fields* agent priority own_round? served_round? round? lease? gpu_id? experiment_traceparent?
-- Returns {queued | leased, attempt, place in the queue} | {stale} | {turn, the rounds now} |
--   {exhausted, gpu_seconds | runs, limit, spent, reserved, needed}
local e = redis.call('HMGET', K.experiment, 'status', 'fence', 'reserved_gpu_seconds')
if e[1] ~= 'registered' or (e[2] or '0') ~= A.fence then return {'stale'} end
if A.baseline and (has_baseline() or not are_all_found()) then return {'stale'} end
if A.lease then
  local g = redis.call('HMGET', K.held_gpu, 'holder', 'fence')
  local paused = redis.call('HEXISTS', K.tag, 'paused_at') == 1
  if g[1] ~= A.id or g[2] ~= A.fence or paused ~= (A.lease == 'returned') then return {'stale'} end
end
local refusal = A.round and other_rounds(A.agent, A.own_round, A.served_round)
  or shortage(ms(A.run_s) - ms(e[3] or '0'), e[3] and 0 or 1)
if refusal then return refusal end

local t = now()
local at = clock(t)
local attempt = redis.call('HINCRBY', K.experiment, 'attempt', 1)
local about = {experiment_id = A.id, attempt = attempt}
reserve(K.experiment, ms(A.run_s))
redis.call('HSET', K.experiment, 'queued_at', at, unpack(A.fields))
redis.call('HSET', K.attempts, attempt .. ':status', 'queued', attempt .. ':queued_at', at)
redis.call('ZREM', K.open, A.id)
relist()
emit('experiment.queued', A.tag, A.id, cjson.encode(about), A.experiment_traceparent)
if A.lease == 'used' then
  redis.call('HSET', K.experiment, 'status', 'leased')
  redis.call('HSET', K.held_gpu, 'attempt', attempt)
  redis.call('HSET', K.attempts, attempt .. ':status', 'leased', attempt .. ':gpu_id', A.gpu_id, attempt .. ':fence', A.fence,
    attempt .. ':leased_at', at)
  redis.call('ZADD', K.starting, 0, A.id)
  about.gpu_id, about.fence = A.gpu_id, tonumber(A.fence)
  emit('experiment.leased', A.tag, A.id, cjson.encode(about), A.experiment_traceparent)
  return {'leased', attempt, 0}
end
if A.lease then
  redis.call('HDEL', K.held_gpu, 'holder', 'leased_at', 'lease_expires_at')
  redis.call('ZREM', K.leases, A.gpu_id)
  redis.call('HDEL', K.experiment, 'gpu_id')
  -- a retest waits for the class of GPU that it has to run on
  if redis.call('HEXISTS', K.experiment, 'retest_of') == 0 then redis.call('HDEL', K.experiment, 'gpu_class') end
  redis.call('HSET', K.experiment, 'fence', 0)
  derive_status(K.held_gpu, A.gpu_id, t, 'its holder waits: the tag is paused')
end
redis.call('HSET', K.experiment, 'status', 'queued')
if A.baseline then
  begin_baseline(A.id, at)
  put_aside()
end
enter_queue(K.experiment, A.id, A.priority, A.agent, A.round)
return {'queued', attempt, position_in(waiting_room(A.id), A.id, K.rivals)}
