-- An experiment enters the lab: its record, its patch and its place in the lineage, before anything runs.
-- parts: patches decided forest
-- keys: tag policy experiments lineage of_category of_status of_status_and_category tried request?
-- keys: of_trace?
-- keys: crashes? best? forest finished selection? open_selections?
-- args: tag policy_version commit fields* about patch_id? request_digest? request_ttl_s experiment_traceparent?
-- args: crashes? best_version? epoch? selection_id? follows_tip?
-- Its number is taken here: `experiments` is what the key of its record begins with.

-- Whether anything has changed that it was admitted by, or the same request has registered one already.
local function is_stale_entry(t)
  if K.request and redis.call('EXISTS', K.request) == 1 then return true end
  if redis.call('HGET', K.policy, 'version') ~= A.policy_version then return true end
  if A.crashes and (redis.call('HGET', K.crashes, 'consecutive') or '0') ~= A.crashes then return true end
  if A.best_version and (redis.call('HGET', K.best, 'version') or '0') ~= A.best_version then return true end
  if A.epoch and (redis.call('HGET', K.forest, 'epoch') or '1') ~= A.epoch then return true end
  if not K.selection then return false end
  local s = redis.call('HMGET', K.selection, 'status', 'experiment_id')
  local ends = redis.call('ZSCORE', K.open_selections, A.selection_id)
  return s[1] ~= 'open' or s[2] or not ends or tonumber(ends) <= t
end

-- The first experiment with this code and these constants; what is new is remembered. Parents are found by their commit.
local function first_with_code(id)
  local constants = A.constants or ''
  local names = {'code:' .. A.commit .. constants}
  if A.patch_id then
    store_patch()
    table.insert(names, 1, 'diff:' .. A.patch_id .. constants)
  end
  redis.call('HSETNX', K.tried, 'commit:' .. A.commit, id)
  local first
  for _, name in ipairs(names) do
    if redis.call('HSETNX', K.tried, name, id) == 0 then first = first or redis.call('HGET', K.tried, name) end
  end
  return first
end

-- Store it as registered or queued. With `follows_tip` its parent is what finished last, or else the baseline, which may run
-- still. Returns its id, its number, the key of its record, the first with its code or empty, and its parents as JSON.
local function register(status, attempt, at)
  local number = redis.call('HINCRBY', K.tag, 'last_number', 1)
  local id, experiment = A.tag .. '-' .. number, K.experiments .. number
  local first = first_with_code(id)
  redis.call('HSET', experiment, 'experiment_id', id, 'number', number, 'status', status, 'attempt', attempt, 'fence', 0,
    'registered_at', at, unpack(A.fields))
  if first then redis.call('HSET', experiment, 'duplicate_of', first) end
  local tip = A.follows_tip and (newest_node() or redis.call('HGET', K.tag, 'baseline_id'))
  if tip then redis.call('HSET', experiment, 'parent_ids', cjson.encode({tip})) end
  keep(id, A.code, A.constants, A.limits)
  for _, index in ipairs({K.lineage, K.of_category, K.of_status, K.of_status_and_category}) do
    redis.call('ZADD', index, number, id)
  end
  if K.of_trace then redis.call('ZADD', K.of_trace, number, id) end
  if K.request then redis.call('SET', K.request, id .. ' ' .. A.request_digest, 'EX', A.request_ttl_s) end
  if K.selection then
    redis.call('HSET', K.selection, 'experiment_id', id)
    redis.call('ZADD', K.open_selections, '+inf', A.selection_id)
  end
  emit('experiment.registered', A.tag, id, string.format('{"experiment_id":"%s","number":%d,%s}', id, number, A.about),
    A.experiment_traceparent)
  return id, number, experiment, first or '', redis.call('HGET', experiment, 'parent_ids') or '[]'
end
