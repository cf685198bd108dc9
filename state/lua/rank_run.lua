-- Enter what a run has at a bucket among its peers, and remember what it is told there; asked again, it is told the same.
-- parts: events
-- keys: experiment ranks rank_classes
-- args: id tag attempt fence bucket class_id gpu_class value progress told reason? extra_s? event_data experiment_traceparent?
-- returns: continue | stop | extend | lost
local e = redis.call('HMGET', K.experiment, 'status', 'attempt', 'fence', 'told')
if e[1] ~= 'running' or (e[2] or '0') ~= A.attempt or (e[3] or '0') ~= A.fence then return 'lost' end
local told, here = cjson.decode(e[4] or '{}'), A.attempt .. ':' .. A.bucket
if told[here] then return told[here] end
told[here] = A.told
redis.call('HSET', K.experiment, 'told', cjson.encode(told))
redis.call('ZADD', K.ranks, A.value, A.id)
redis.call('HSET', K.rank_classes, A.class_id, A.gpu_class)
append('run.ticked', A.tag, A.id, A.event_data, A.experiment_traceparent)
if A.told == 'stop' then
  redis.call('HSET', K.experiment, 'stopping', 'true', 'stop_reason', A.reason)
  emit('run.stopping', A.tag, A.id, A.event_data, A.experiment_traceparent)
elseif A.told == 'extend' then
  redis.call('HSET', K.experiment, 'extended_s', A.extra_s, 'base_metric', A.value, 'base_progress', A.progress)
  emit('run.extended', A.tag, A.id, A.event_data, A.experiment_traceparent)
end
return A.told
