-- What its retests make of an experiment: it stands, falls or rises, and the best follows.
-- parts: events listing
-- keys: experiment tag best standing_before standing_after near_misses categories traces*
-- args: tag category status_before status branches best_version finishes? fields* best_fields* near_miss_score? score? tag_fields* event? event_data
-- args: best_event? best_id? experiment_traceparent? trace_fields* trace_versions*
-- returns: ok | stale
if redis.call('HGET', K.experiment, 'status') ~= A.status_before then return 'stale' end
if redis.call('HGET', K.best, 'version') ~= A.best_version then return 'stale' end
if A.finishes and (redis.call('HGET', K.tag, 'finishes') or '0') ~= A.finishes then return 'stale' end
if A.status ~= A.status_before and (redis.call('HGET', K.experiment, 'branches') or '0') ~= A.branches then return 'stale' end
for i, trace in ipairs(K.traces) do
  if (redis.call('HGET', trace, 'version') or '0') ~= A.trace_versions[i] then return 'stale' end
end
if #A.fields > 0 then redis.call('HSET', K.experiment, unpack(A.fields)) end
if A.status ~= A.status_before then
  local up = A.status == 'keep' and 1 or -1
  redis.call('HSET', K.experiment, 'status', A.status)
  redis.call('HINCRBY', K.tag, 'kept', up)
  redis.call('HINCRBY', K.tag, 'discarded', -up)
  redis.call('HINCRBY', K.categories, A.category .. ':kept', up)
  relist()
  if A.near_miss_score then
    redis.call('ZADD', K.near_misses, A.near_miss_score, A.id)
  else
    redis.call('ZREM', K.near_misses, A.id)
  end
end
local score = A.score or redis.call('ZSCORE', K.standing_before, A.id)
if score then
  redis.call('ZREM', K.standing_before, A.id)
  redis.call('ZADD', K.standing_after, score, A.id)
end
if #A.tag_fields > 0 then redis.call('HSET', K.tag, unpack(A.tag_fields)) end
for i, trace in ipairs(K.traces) do
  put(trace, A.trace_fields[i])
  redis.call('HINCRBY', trace, 'version', 1)
end
redis.call('HSET', K.best, unpack(A.best_fields))
redis.call('HINCRBY', K.best, 'version', 1)
if A.event then emit(A.event, A.tag, A.id, A.event_data, A.experiment_traceparent) end
if A.best_event then
  redis.call('HSET', K.best, 'updated_at', clock(now()))
  emit('best.changed', A.tag, A.best_id, A.best_event, A.experiment_traceparent)
end
return 'ok'
