-- An experiment enters its final status here and nowhere else. A retest is over without being counted: it is evidence for
-- the experiment that it repeats.
-- parts: books gpu selection forest queue listing noise handed_out
-- keys: experiment attempts open starting parked queue_clock crashes categories near_misses
-- keys: status_before category_before status_after category_after best? standing? noise? same_code? gpu? sources* begins_on?
-- keys: ends? trends? reference_times
-- args: id number category status_before attempt fence
-- args: status? fields* event? event_data? experiment_traceparent? ending? reason?
-- args: is_baseline? was_claim? counter? counter_before? counts? follows? reported_s? training_seconds? score? near_miss_score?
-- args: best_version? best_fields* best_event? key_version? key_fields*
-- args: tag_crashes? tag_crashes_before? abort_at? gpu_id? gpu_crashes? gpu_crashes_before? trip_reason? trip_s?
-- args: time_classes* references_before* reference_after*
-- args: end_value? trend_sums* only_overdue?
-- args: trace_fields* trace_version? epoch? trace_becomes? trace_why? source_versions*

local function changed(key, field, absent, expected)
  return expected and (redis.call('HGET', key, field) or absent) ~= expected
end

-- Whether anything that the decision used is another by now.
local function is_stale()
  local e = redis.call('HMGET', K.experiment, 'status', 'attempt', 'fence')
  if e[1] ~= A.status_before or e[2] ~= A.attempt or e[3] ~= A.fence then return true end
  if A.was_claim and redis.call('HEXISTS', K.experiment, 'measured_by') == 1 then return true end
  if A.best_version and changed(K.best, 'version', '0', A.best_version)
    or changed(K.tag, 'key_version', '0', A.key_version)
    or changed(K.crashes, 'consecutive', '0', A.tag_crashes_before)
    or A.gpu_crashes_before and changed(K.gpu, 'consecutive_crashes', '0', A.gpu_crashes_before)
    or noise_changed() then return true end
  for i, class in ipairs(A.time_classes) do
    if changed(K.reference_times, class, '', A.references_before[i]) then return true end
  end
  if A.only_overdue then
    local lost_at = redis.call('ZSCORE', K.handed_out, A.id)
    if not lost_at or tonumber(lost_at) > now() then return true end
  end
  if #A.trace_fields == 0 then return false end
  if changed(K.trace, 'version', '0', A.trace_version) or changed(K.forest, 'epoch', '1', A.epoch)
    or K.begins_on and changed(K.begins_on, 'status', '', 'keep') then return true end
  for i, source in ipairs(K.sources) do
    local s = redis.call('HMGET', source, 'status', 'version')
    if s[1] ~= 'live' or s[2] ~= A.source_versions[i] then return true end
  end
  return false
end

-- The tag's counters and the finish order. `counts`: it was judged, and is no retest.
local function count()
  if A.counter then redis.call('HINCRBY', K.tag, A.counter, 1) end
  if A.counter_before then redis.call('HINCRBY', K.tag, A.counter_before, -1) end
  if A.counts then
    redis.call('HINCRBY', K.tag, 'total', 1)
    local nth = redis.call('HINCRBY', K.tag, 'finishes', 1)
    redis.call('HSET', K.experiment, 'finish_number', nth)
    local newest, before = A.id, nth
    if not A.follows then newest, before = newest_node() end
    redis.call('HSET', K.forest, 'newest', newest or '', 'newest_nth', before)
    redis.call('ZADD', K.finished, nth, A.id)
    if not A.is_baseline then redis.call('HINCRBY', K.categories, A.category .. ':total', 1) end
    if A.status == 'keep' and not A.is_baseline then redis.call('HINCRBY', K.categories, A.category .. ':kept', 1) end
  end
  if A.training_seconds then redis.call('HINCRBY', K.tag, 'training_ms', string.format('%d', ms(A.training_seconds))) end
  if #A.key_fields > 0 then
    redis.call('HSET', K.tag, unpack(A.key_fields))
    redis.call('HINCRBY', K.tag, 'key_version', 1)
  end
end

-- What Nightjar trained is spent by Redis' clock, what an agent trained itself by its own report.
local function spend(ended)
  if A.attempt == '0' then
    close_books(K.experiment, ms(A.reported_s), A.reported_s and 1 or 0)
  else
    local started = redis.call('HGET', K.attempts, A.attempt .. ':started_at')
    close_books(K.experiment, lasted(started, ended), (started or tonumber(A.attempt) > 1) and 1 or 0)
    redis.call('HSET', K.attempts, A.attempt .. ':status', A.status, A.attempt .. ':ended_at', ended)
    if A.reason then redis.call('HSET', K.attempts, A.attempt .. ':reason', A.reason) end
  end
end

-- Crashes in a row, of the tag and of the GPU that it ran on.
local function count_crashes(t)
  if A.tag_crashes then redis.call('HSET', K.crashes, 'consecutive', A.tag_crashes) end
  if A.tag_crashes_before then redis.call('HINCRBY', K.crashes, 'total', 1) end
  if not A.gpu_crashes then return end
  redis.call('HSET', K.gpu, 'consecutive_crashes', A.gpu_crashes)
  if A.gpu_crashes == '0' then redis.call('HDEL', K.gpu, 'tripped', 'tripped_until', 'trips') end
  if A.trip_reason then
    redis.call('HINCRBY', K.gpu, 'trips', 1)
    redis.call('HSET', K.gpu, 'tripped', A.trip_reason, 'tripped_until', clock(t + tonumber(A.trip_s)))
  end
  derive_status(K.gpu, A.gpu_id, t, 'a run ended')
end

-- Crashes in a row that have refused what is new until now; nil: too few, or the tag's policy lets it in.
local function aborted_after()
  local crashes = A.abort_at and tonumber(redis.call('HGET', K.crashes, 'consecutive') or '0')
  return crashes and crashes >= tonumber(A.abort_at) and crashes or nil
end

local function add_to_noise(at)
  if not A.df then return end
  redis.call('ZADD', K.same_code, at, A.id)
  change_noise()
end

-- What it ended with, and what this adds to the trends of the buckets at which it was ranked.
local function add_to_trends()
  if not A.end_value then return end
  redis.call('ZADD', K.ends, A.end_value, A.id)
  for i = 1, #A.trend_sums, 2 do redis.call('HINCRBYFLOAT', K.trends, A.trend_sums[i], A.trend_sums[i + 1]) end
end

-- The trace that it is a node of grows, begins or ends; a kept merge ends its sources.
local function grow_trace(t)
  if #A.trace_fields > 0 then
    local before = redis.call('HGET', K.trace, 'status')
    redis.call('HSET', K.trace, unpack(A.trace_fields))
    redis.call('HINCRBY', K.trace, 'version', 1)
    if K.begins_on then redis.call('HINCRBY', K.begins_on, 'branches', 1) end -- who takes it back looks again
    if before == 'pending' and A.trace_becomes == 'live' then
      redis.call('HSET', K.trace, 'status', 'live')
      local id = redis.call('HGET', K.trace, 'trace_id')
      emit('trace.opened', A.tag, id, cjson.encode({trace_id = id, root = A.id}), A.experiment_traceparent)
    elseif A.trace_becomes == 'dead' and before ~= 'dead' then
      end_trace(K.trace, 'dead', A.trace_why, t)
    end
    for _, source in ipairs(K.sources) do
      redis.call('HSET', source, 'merged_into', redis.call('HGET', K.trace, 'trace_id'))
      end_trace(source, 'merged', 'it was merged by ' .. A.id, t)
    end
  end
  if A.ending then close_selection(A.ending, A.reason or A.status, t) end
end

local function change_best(at)
  if #A.best_fields > 0 then
    redis.call('HSET', K.best, unpack(A.best_fields))
    redis.call('HINCRBY', K.best, 'version', 1)
  end
  if A.best_event then
    redis.call('HSET', K.best, 'updated_at', at)
    emit('best.changed', A.tag, A.id, A.best_event, A.experiment_traceparent)
  end
end

-- `used_until`: when its GPU was used last, where that is not now.
local function end_experiment(t, used_until)
  local at, lifted = clock(t), aborted_after()
  redis.call('HSET', K.experiment, 'status', A.status, 'finished_at', at, unpack(A.fields))
  count()
  if not A.was_claim then spend(used_until or at) end -- its agent's report has closed the books
  add_to_noise(at)
  if #A.reference_after > 0 then redis.call('HSET', K.reference_times, unpack(A.reference_after)) end
  add_to_trends()
  if A.score then redis.call('ZADD', K.standing, A.score, A.id) end
  if A.near_miss_score then redis.call('ZADD', K.near_misses, A.near_miss_score, A.id) end
  count_crashes(t)
  relist()
  give_turn_back(K.experiment, A.id)
  redis.call('ZREM', K.starting, A.id)
  redis.call('ZREM', K.open, A.id)
  end_hand_out(A.status)
  emit(A.event, A.tag, A.id, A.event_data, A.experiment_traceparent)
  if lifted then
    emit('tag.resumed', A.tag, A.tag, cjson.encode({tag = A.tag, lifted = 'crashes', crashes = lifted, experiment_id = A.id}))
  end
  grow_trace(t)
  change_best(at)
end
