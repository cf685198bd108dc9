-- Keep what a swarm's worker measured of a run that it was told to stop; the first word counts.
-- parts: events
-- keys: experiment
-- args: id tag value event_data experiment_traceparent?
-- returns: ok | stale: it is not stopped, or a value is kept already
local e = redis.call('HMGET', K.experiment, 'status', 'late_val_bpb')
if e[1] ~= 'stopped' or e[2] then return 'stale' end
redis.call('HSET', K.experiment, 'late_val_bpb', A.value)
emit('run.reported_late', A.tag, A.id, A.event_data, A.experiment_traceparent)
return 'ok'
