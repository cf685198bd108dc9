-- What a run has at a bucket, entered among its peers, and what it is told there: asked again, it is told the same.
-- parts: events
-- keys: experiment tag ranks* rank_classes trends?
-- args: id tag attempt bucket? class_id? rank_class? value? metric? progress? rank? chance? place? told? reason? extra_s? tick_data? experiment_traceparent?
-- `value` is what it is ranked by, `metric` what it has reported, `told` what it is told where it was told nothing yet.

-- What it is told now, and whether that was decided by this call.
local function rank()
  local told, here = cjson.decode(redis.call('HGET', K.experiment, 'told') or '{}'), A.attempt .. ':' .. A.bucket
  if told[here] then return told[here], false end
  told[here] = A.told
  redis.call('HSET', K.experiment, 'told', cjson.encode(told))
  if A.rank then
    local ranked = cjson.decode(redis.call('HGET', K.experiment, 'ranked') or '{}')
    ranked[A.bucket] = {tonumber(A.rank), tonumber(A.chance)}
    redis.call('HSET', K.experiment, 'ranked', cjson.encode(ranked))
  end
  if A.place then
    local e = redis.call('HMGET', K.experiment, 'places', 'rank_class')
    local places = e[2] == A.rank_class and cjson.decode(e[1] or '{}') or {}
    places[A.bucket] = tonumber(A.place)
    redis.call('HSET', K.experiment, 'places', cjson.encode(places), 'rank_class', A.rank_class)
  end
  for _, pool in ipairs(K.ranks) do redis.call('ZADD', pool, A.value, A.id) end
  redis.call('HSET', K.rank_classes, A.class_id, A.rank_class)
  redis.call('HINCRBY', K.tag, 'ticks', 1)
  append('run.ticked', A.tag, A.id, A.tick_data, A.experiment_traceparent)
  if A.told == 'stop' then
    redis.call('HINCRBY', K.trends, A.bucket .. ':stopped', 1)
    redis.call('HSET', K.experiment, 'stopping', 'true', 'stop_reason', A.reason)
    emit('run.stopping', A.tag, A.id, A.tick_data, A.experiment_traceparent)
  elseif A.told == 'extend' then
    redis.call('HSET', K.experiment, 'extended_s', A.extra_s, 'base_metric', A.metric, 'base_progress', A.progress)
  end
  return A.told, true
end
