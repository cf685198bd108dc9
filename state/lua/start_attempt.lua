-- A worker begins an attempt; a second worker, or one with an old fence, is refused.
-- parts: events listing lease
-- keys: experiment attempts starting
-- args: tag attempt fence runner timeout_s footprint? experiment_traceparent?
-- `footprint` is the GPU's memory before the run, as JSON.
-- returns: ok | refused
local e = redis.call('HMGET', K.experiment, 'status', 'attempt', 'fence')
local g = redis.call('HMGET', K.gpu, 'holder', 'fence', 'gpu_id')
if e[1] ~= 'leased' or e[2] ~= A.attempt or e[3] ~= A.fence or g[1] ~= A.id or g[2] ~= A.fence then return 'refused' end
local t = now()
redis.call('HSET', K.experiment, 'status', 'running', 'started_at', clock(t))
redis.call('HDEL', K.experiment, 'extended_s', 'base_metric', 'base_progress')
redis.call('HDEL', K.gpu, 'footprint')
redis.call('HSET', K.gpu, 'runner', A.runner)
if A.footprint then redis.call('HSET', K.gpu, 'footprint', A.footprint) end
set_deadline(t, A.timeout_s)
prolong(t, g[3])
redis.call('HSET', K.attempts, A.attempt .. ':status', 'running', A.attempt .. ':started_at', clock(t),
  A.attempt .. ':runner', A.runner)
redis.call('ZREM', K.starting, A.id)
relist()
emit('experiment.started', A.tag, A.id,
  cjson.encode({experiment_id = A.id, attempt = tonumber(A.attempt), gpu_id = g[3], fence = tonumber(A.fence)}),
  A.experiment_traceparent)
return 'ok'
