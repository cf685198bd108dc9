-- Give a worker of a swarm its unfinished run again: its reports start over.
-- parts: events
-- keys: experiment swarm_worker swarm_seen handed_out ticks ranks*
-- args: id tag worker_id lost_after_s event_data experiment_traceparent?
-- returns: ok | stale
local e = redis.call('HMGET', K.experiment, 'status', 'handed_out', 'stopping')
if e[1] ~= 'running' or e[2] ~= '1' or e[3] == 'true' or redis.call('HGET', K.swarm_worker, 'run_id') ~= A.id then
  return 'stale'
end
local t = now()
redis.call('HSET', K.experiment, 'handed_out', 2, 'started_at', clock(t))
redis.call('HDEL', K.experiment, 'told', 'ranked', 'places', 'last_metric', 'last_progress', 'tick_source', 'extended_s', 'base_metric', 'base_progress')
redis.call('DEL', K.ticks)
for _, pool in ipairs(K.ranks) do redis.call('ZREM', pool, A.id) end
redis.call('ZADD', K.handed_out, clock(t + tonumber(A.lost_after_s)), A.id)
redis.call('ZADD', K.swarm_seen, clock(t), A.worker_id)
emit('experiment.started', A.tag, A.id, A.event_data, A.experiment_traceparent)
return 'ok'
