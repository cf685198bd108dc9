-- Forget a GPU that nobody holds.
-- parts: events
-- keys: gpu gpus idle_gpus
-- args: gpu_id
-- returns: ok | unknown | held
if redis.call('EXISTS', K.gpu) == 0 then return 'unknown' end
if redis.call('HEXISTS', K.gpu, 'holder') == 1 then return 'held' end
redis.call('DEL', K.gpu)
redis.call('ZREM', K.gpus, A.gpu_id)
redis.call('ZREM', K.idle_gpus, A.gpu_id)
emit('gpu.offline', '', A.gpu_id, cjson.encode({gpu_id = A.gpu_id, reason = 'deregistered'}))
return 'ok'
