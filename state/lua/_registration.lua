-- A config enters the lab as a run of a swarm: its record and its place in the lineage.
-- parts: books decided
-- keys: tag policy experiments lineage of_category of_status of_status_and_category tried
-- args: tag policy_version commit fields* about experiment_traceparent?
-- Its number is taken here: `experiments` is what the key of its record begins with.

-- Whether the policy has changed that it was admitted by.
local function is_stale_entry()
  return redis.call('HGET', K.policy, 'version') ~= A.policy_version
end

-- Store it. Returns its id, its number, and the key of its record. The first with its code and constants is remembered.
local function register(status, attempt, at)
  local number = redis.call('HINCRBY', K.tag, 'last_number', 1)
  local id, experiment, code = A.tag .. '-' .. number, K.experiments .. number, 'code:' .. A.commit .. (A.constants or '')
  redis.call('HSETNX', K.tried, 'commit:' .. A.commit, id)
  redis.call('HSET', experiment, 'experiment_id', id, 'number', number, 'status', status, 'attempt', attempt, 'fence', 0,
    'registered_at', at, unpack(A.fields))
  if redis.call('HSETNX', K.tried, code, id) == 0 then
    redis.call('HSET', experiment, 'duplicate_of', redis.call('HGET', K.tried, code))
  end
  keep(id, A.code, A.constants, A.limits)
  for _, index in ipairs({K.lineage, K.of_category, K.of_status, K.of_status_and_category}) do
    redis.call('ZADD', index, number, id)
  end
  emit('experiment.registered', A.tag, id, string.format('{"experiment_id":"%s","number":%d,%s}', id, number, A.about),
    A.experiment_traceparent)
  return id, number, experiment
end
