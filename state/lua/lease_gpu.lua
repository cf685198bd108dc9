-- Lend the first of the candidates that is still idle and fresh to an experiment, with a new fence. A queued experiment
-- that holds a GPU itself (its agent acquired it) is leased that one.
-- parts: events queue
-- keys: experiment attempts tag paused starting leases idle_gpus fence held_gpu? candidates*
-- keys: status_before category_before status_after category_after
-- args: id number tag status_before attempt lease_s stale_s held_before? chosen_from? agent? experiment_traceparent?
-- `held_before` is the GPU that it held last. `chosen_from` are the idle GPUs among which the candidates were chosen, joined
-- by commas, if that matters. A GPU of an agent's own is lent to that `agent` only.
-- returns: {leased | held, gpu, index, fence, expiry} | {none} | {paused} | {stale}
local t = now()

-- Derive the status of a GPU from its flags, the strongest flag first, and keep the index of idle GPUs equal to it. Returns the status.
local function derive_status(gpu, gpu_id, t, reason)
  local f = redis.call('HMGET', gpu, 'status', 'offline', 'holder', 'sick', 'drained', 'unproven', 'leaving', 'tripped')
  local status = f[2] and 'offline' or f[3] and 'training' or (f[4] or f[8]) and 'unhealthy'
    or (f[5] or f[6] or f[7]) and 'draining' or 'idle'
  if status == f[1] then return status end
  redis.call('HSET', gpu, 'status', status)
  if status == 'idle' then
    redis.call('HSET', gpu, 'idle_since', clock(t))
    redis.call('ZADD', K.idle_gpus, clock(t), gpu_id)
  else
    redis.call('HDEL', gpu, 'idle_since')
    redis.call('ZREM', K.idle_gpus, gpu_id)
  end
  if status ~= 'training' then
    local why = status == 'unhealthy' and (f[4] or f[8]) or reason
    emit('gpu.' .. status, '', gpu_id, cjson.encode({gpu_id = gpu_id, reason = why}))
  end
  return status
end

-- The indexes of experiments: by status, and by status and category.
local function relist()
  redis.call('ZREM', K.status_before, A.id)
  redis.call('ZREM', K.category_before, A.id)
  redis.call('ZADD', K.status_after, A.number, A.id)
  redis.call('ZADD', K.category_after, A.number, A.id)
end

local function about(gpu, fence)
  return cjson.encode({experiment_id = A.id, attempt = tonumber(A.attempt), gpu_id = gpu, fence = tonumber(fence)})
end

local function begin_attempt(gpu, fence)
  take_turn(K.experiment, A.id)
  redis.call('HSET', K.experiment, 'status', 'leased')
  redis.call('HSET', K.attempts, A.attempt .. ':status', 'leased', A.attempt .. ':gpu_id', gpu, A.attempt .. ':fence', fence,
    A.attempt .. ':leased_at', clock(t))
  relist()
  redis.call('ZADD', K.starting, clock(t), A.id)
  emit('experiment.leased', A.tag, A.id, about(gpu, fence), A.experiment_traceparent)
end

local e = redis.call('HMGET', K.experiment, 'status', 'attempt', 'gpu_id', 'fence')
local own = K.held_gpu
  and redis.call('HMGET', K.held_gpu, 'holder', 'fence', 'gpu_id', 'gpu_index', 'lease_expires_at') or {}
local holds = own[1] == A.id and own[2] == e[4]
if holds and e[1] ~= 'queued' then return {'held', own[3], own[4], own[2], own[5]} end
if e[1] ~= A.status_before or e[2] ~= A.attempt or (e[3] or nil) ~= A.held_before then return {'stale'} end
if redis.call('HEXISTS', K.tag, 'paused_at') == 1 then return {'paused'} end
if holds then
  redis.call('HSET', K.held_gpu, 'attempt', A.attempt)
  begin_attempt(own[3], own[2])
  return {'leased', own[3], own[4], own[2], own[5]}
end
for _, candidate in ipairs(K.candidates) do
  local gpu = redis.call('HMGET', candidate, 'status', 'heartbeat_at', 'gpu_id', 'gpu_index', 'gpu_name', 'of_agent', 'owner')
  if gpu[1] == 'idle' and (not gpu[6] or gpu[7] == A.agent) and t - tonumber(gpu[2]) < tonumber(A.stale_s) then
    local fence = redis.call('INCR', K.fence)
    local expiry = clock(t + tonumber(A.lease_s))
    redis.call('HSET', candidate, 'holder', A.id, 'attempt', A.attempt, 'fence', fence, 'leased_at', clock(t),
      'lease_expires_at', expiry)
    redis.call('HDEL', candidate, 'runner', 'deadline')
    derive_status(candidate, gpu[3], t)
    redis.call('ZADD', K.leases, expiry, gpu[3])
    redis.call('HSET', K.experiment, 'fence', fence, 'gpu_id', gpu[3], 'gpu_class', gpu[5])
    if e[1] == 'queued' then
      redis.call('HSET', candidate, 'deadline', clock(t + 2 * tonumber(A.lease_s))) -- until a worker begins the run
      begin_attempt(gpu[3], fence)
    end
    emit('gpu.leased', A.tag, gpu[3], about(gpu[3], fence), A.experiment_traceparent)
    return {'leased', gpu[3], gpu[4], tostring(fence), expiry}
  end
end
-- A GPU that has become idle since the candidates were chosen may fit: look again.
if A.chosen_from and table.concat(redis.call('ZRANGE', K.idle_gpus, 0, -1), ',') ~= A.chosen_from then return {'stale'} end
return {'none'}
