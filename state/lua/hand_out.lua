-- Hand a config out to a worker of a swarm: an experiment that runs from now on.
-- parts: registration books
-- keys: swarm_worker swarm_seen handed_out configs proposals dimensions assigned in_flight
-- args: worker_id is_extra? run_id? run_s lost_after_s fingerprint version most_trials? most_in_flight? most_active? proposal?
-- args: population_id is_compared? is_reference? few started
-- `run_id` is the worker's run when this was decided, and `version` that of the dimensions; with `is_extra` the worker asks
-- for a run beside that. `proposal` is the config's text in `proposals`, which it leaves. The config may have been tried so
-- often, so many runs of it be in flight, and the worker have so many runs. Where `few` configs are left, or none was and
-- this one was drawn, an event asks for more. `started` is data of an event.
-- Returns {ok, number} | {stale} | {taken} | {busy} |
--   {exhausted, gpu_seconds | runs, limit, spent, reserved, needed}

-- Whether the config was tried often enough, or enough workers have it.
local function is_taken()
  local count = redis.call('HMGET', K.configs, A.fingerprint .. ':trials', A.fingerprint .. ':in_flight')
  local trials, in_flight = tonumber(count[1] or '0'), tonumber(count[2] or '0')
  return A.most_trials and trials + in_flight >= tonumber(A.most_trials)
    or A.most_in_flight and in_flight >= tonumber(A.most_in_flight)
end

-- Ask for more configs, once on the way down.
local function ask_for_more()
  local left = redis.call('ZCARD', K.proposals)
  if A.proposal and left == tonumber(A.few) or left == 0 then
    emit('proposals.few', A.tag, A.population_id, string.format('{"left":%d}', left))
  end
end

local t = now()
if is_stale_entry() or redis.call('HEXISTS', K.tag, 'paused_at') == 1
  or (redis.call('HGET', K.dimensions, 'version') or '0') ~= A.version
  or not A.is_extra and (redis.call('HGET', K.swarm_worker, 'run_id') or nil) ~= A.run_id then return {'stale'} end
if A.most_active and tonumber(redis.call('HGET', K.swarm_worker, 'active') or '0') >= tonumber(A.most_active) then
  return {'busy'}
end
local refusal = shortage(ms(A.run_s), 1)
if refusal then return refusal end
if A.proposal and redis.call('ZREM', K.proposals, A.proposal) == 0 then return {'stale'} end
if is_taken() then return {'taken'} end
local at = clock(t)
local id, number, experiment = register('running', 0, at)
redis.call('HSET', experiment, 'started_at', at, 'handed_out', 1)
reserve(experiment, ms(A.run_s))
redis.call('HINCRBY', K.configs, A.fingerprint .. ':in_flight', 1)
redis.call('ZADD', K.handed_out, clock(t + tonumber(A.lost_after_s)), id)
redis.call('ZADD', K.swarm_seen, at, A.worker_id)
redis.call('HINCRBY', K.swarm_worker, 'active', 1)
if not A.is_extra then
  redis.call('HSET', K.swarm_worker, 'run_id', id, 'population_id', A.population_id)
  redis.call('HSET', K.assigned, A.worker_id, A.population_id)
  redis.call('HINCRBY', K.in_flight, A.population_id, 1)
  if A.is_reference then
    redis.call('HSET', K.swarm_worker, 'compared', 0)
  elseif A.is_compared then
    redis.call('HINCRBY', K.swarm_worker, 'compared', 1)
  end
end
ask_for_more()
emit('experiment.started', A.tag, id, string.format('{"experiment_id":"%s",%s}', id, A.started), A.experiment_traceparent)
return {'ok', number}
