-- A GPU's status is derived from its flags.
-- parts: events
-- keys: idle_gpus

-- Derive it, the strongest flag first, and keep the index of idle GPUs equal to it. Returns the status.
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
