-- Hand a retest out to a worker of a swarm: one more run of a config that was kept.
-- parts: books events listing
-- keys: experiment tag open swarm_worker swarm_seen handed_out configs
-- args: id number tag worker_id run_id? run_s lost_after_s fingerprint fields* started experiment_traceparent?
-- `run_id` is the worker's run when this was decided; `started` is data of an event.
-- Returns {ok} | {stale} | {exhausted, gpu_seconds | runs, limit, spent, reserved, needed}
if redis.call('HGET', K.experiment, 'status') ~= 'registered' or redis.call('HEXISTS', K.tag, 'paused_at') == 1
  or (redis.call('HGET', K.swarm_worker, 'run_id') or nil) ~= A.run_id then return {'stale'} end
local refusal = shortage(ms(A.run_s), 1)
if refusal then return refusal end
local t = now()
local at = clock(t)
redis.call('HSET', K.experiment, 'status', 'running', 'started_at', at, 'handed_out', 1, unpack(A.fields))
redis.call('ZREM', K.open, A.id)
relist()
reserve(K.experiment, ms(A.run_s))
redis.call('HINCRBY', K.configs, A.fingerprint .. ':in_flight', 1)
redis.call('ZADD', K.handed_out, clock(t + tonumber(A.lost_after_s)), A.id)
redis.call('ZADD', K.swarm_seen, at, A.worker_id)
redis.call('HSET', K.swarm_worker, 'run_id', A.id)
redis.call('HINCRBY', K.swarm_worker, 'active', 1)
emit('experiment.started', A.tag, A.id, string.format('{"experiment_id":"%s",%s}', A.id, A.started), A.experiment_traceparent)
return {'ok'}
