-- Take a result back: it leaves the best, the indexes of results, the ranks, the noise, the counters and its traces. What
-- was judged with it is corrected, and the best that follows from the rest takes its place.
-- parts: events listing noise leaders
-- keys: experiment tag best standing near_misses finished categories noise? same_code? traces*
-- keys: corrected* beaten keeps risen? risen_listed* ranks* swarm_worker? ends? trends? reference_times
-- args: time_classes* id number tag category status_before branches finishes best_version fields* counter is_baseline? is_claim? tag_fields* event_data experiment_traceparent?
-- args: leaving* trend_sums*
-- args: corrected_ids* corrected_fields* corrected_scores* corrected_near*
-- args: risen_id? risen_was_discard? risen_number? risen_category? risen_fields* risen_score?
-- args: best_fields* best_event? best_id? trace_fields* trace_versions*
-- `leaving`: it and its retests, among the runs of its code. `corrected`: later results of the same code. `risen`: the
-- result that is the best now, where no keep is left; `risen_listed` are its indexes, as in _listing.lua.
-- returns: ok | stale
local function is_stale()
  if redis.call('HGET', K.experiment, 'status') ~= A.status_before
    or (redis.call('HGET', K.experiment, 'branches') or '0') ~= A.branches
    or (redis.call('HGET', K.best, 'version') or '0') ~= A.best_version
    or (redis.call('HGET', K.tag, 'finishes') or '0') ~= A.finishes
    or noise_changed() then return true end
  for i, trace in ipairs(K.traces) do
    if (redis.call('HGET', trace, 'version') or '0') ~= A.trace_versions[i] then return true end
  end
  return false
end

-- A category that nothing counts in any more was not tried; the baseline and claims count in none.
local function uncategorise()
  if A.is_baseline then return end
  local total, kept = A.category .. ':total', A.category .. ':kept'
  if A.status_before == 'keep' then redis.call('HINCRBY', K.categories, kept, -1) end
  if redis.call('HINCRBY', K.categories, total, -1) == 0 then redis.call('HDEL', K.categories, total, kept) end
end

local function uncount()
  redis.call('HINCRBY', K.tag, A.counter, -1)
  redis.call('HINCRBY', K.tag, 'retracted', 1)
  if not A.is_claim then redis.call('HINCRBY', K.tag, 'total', -1) end
  redis.call('HINCRBY', K.tag, 'key_version', 1) -- what is being judged with it is judged again
  if not A.is_claim then uncategorise() end
  if #A.tag_fields > 0 then redis.call('HSET', K.tag, unpack(A.tag_fields)) end
  local t = redis.call('HMGET', K.tag, 'total', 'crashed', 'awaits_baseline')
  if t[1] == (t[2] or '0') then -- it was the only result: the next one says under which conditions the tag is measured
    redis.call('HDEL', K.tag, 'key_gpu_class', 'key_noise', 'key_evaluator_hash', 'key_budget_seconds',
      'lab_measured')
    if t[3] ~= 'true' then redis.call('HDEL', K.tag, 'baseline_id') end
  end
  if K.swarm_worker then redis.call('HINCRBY', K.swarm_worker, 'runs', -1) end
  for _, index in ipairs({K.finished, K.standing, K.near_misses}) do redis.call('ZREM', index, A.id) end
  for _, pool in ipairs(K.ranks) do redis.call('ZREM', pool, A.id) end
end

local function leave_trends()
  if not K.ends or redis.call('ZREM', K.ends, A.id) == 0 then return end
  for i = 1, #A.trend_sums, 2 do redis.call('HINCRBYFLOAT', K.trends, A.trend_sums[i], A.trend_sums[i + 1]) end
end

local function leave_noise()
  if not A.df then return end
  redis.call('ZREM', K.same_code, unpack(A.leaving))
  change_noise()
end

-- The next run that is measured says how long runs take.
local function leave_reference()
  for _, class in ipairs(A.time_classes) do
    local reference = redis.call('HGET', K.reference_times, class)
    if reference and cjson.decode(reference).experiment_id == A.id then redis.call('HDEL', K.reference_times, class) end
  end
end

local function correct()
  for i, id in ipairs(A.corrected_ids) do
    put(K.corrected[i], A.corrected_fields[i])
    redis.call('ZADD', K.beaten, A.corrected_scores[i], id)
    if A.corrected_near[i] == 'yes' then redis.call('ZADD', K.near_misses, A.corrected_scores[i], id) end
  end
end

local function raise()
  if not K.risen then return end
  redis.call('HSET', K.risen, 'status', 'keep', unpack(A.risen_fields))
  if A.risen_was_discard then
    redis.call('HINCRBY', K.tag, 'kept', 1)
    redis.call('HINCRBY', K.tag, 'discarded', -1)
    redis.call('HINCRBY', K.categories, A.risen_category .. ':kept', 1)
  end
  for i, index in ipairs(K.risen_listed) do
    if i <= 2 then redis.call('ZREM', index, A.risen_id) else redis.call('ZADD', index, A.risen_number, A.risen_id) end
  end
  redis.call('ZREM', K.beaten, A.risen_id)
  redis.call('ZREM', K.near_misses, A.risen_id)
  redis.call('ZADD', K.keeps, A.risen_score, A.risen_id)
end

if is_stale() then return 'stale' end
redis.call('HSET', K.experiment, 'status', 'retracted', unpack(A.fields))
uncount()
relist()
leave_noise()
leave_trends()
leave_reference()
leave_leaders()
correct()
raise()
for i, trace in ipairs(K.traces) do
  put(trace, A.trace_fields[i])
  redis.call('HINCRBY', trace, 'version', 1)
end
emit('experiment.retracted', A.tag, A.id, A.event_data, A.experiment_traceparent)
if #A.best_fields == 0 then
  redis.call('DEL', K.best)
  return 'ok'
end
redis.call('HSET', K.best, unpack(A.best_fields))
redis.call('HINCRBY', K.best, 'version', 1)
if A.best_event then
  redis.call('HSET', K.best, 'updated_at', clock(now()))
  emit('best.changed', A.tag, A.best_id, A.best_event, A.experiment_traceparent)
end
return 'ok'
