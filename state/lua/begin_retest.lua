-- Begin a retest: one more run of an experiment's code, under an id of its own. It waits for a GPU at once, its run set
-- aside from the tag's budget; without `run_s` its agent trains it itself. With `round` it takes its agent's turn.
-- parts: events books queue decided
-- keys: experiment retest status_index category_index open attempts patch? patch_uses
-- args: experiment_id id number retests_before status_before fields* status patience_s seed run_s? priority experiment_traceparent?
-- args: agent own_round? served_round? round? patch?
-- returns: {ok | stale | archived (call again with the patch)} | {turn, the rounds now} | {exhausted, gpu_seconds | runs, limit, spent, reserved, needed}
local e = redis.call('HMGET', K.experiment, 'retests', 'status')
if (e[1] or '0') ~= A.retests_before or e[2] ~= A.status_before then return {'stale'} end
local refusal = A.round and other_rounds(A.agent, A.own_round, A.served_round) or A.run_s and shortage(ms(A.run_s), 1)
if refusal then return refusal end
if K.patch then
  redis.call('INCR', K.patch_uses)
  if redis.call('EXISTS', K.patch) == 0 then
    if not A.patch then return {'archived'} end
    redis.call('SET', K.patch, A.patch)
  end
end
local t = now()
redis.call('HINCRBY', K.experiment, 'retests', 1)
redis.call('HSET', K.retest, 'registered_at', clock(t), 'status', A.status, unpack(A.fields))
keep_retest(A.id, A.experiment_id, A.seed)
redis.call('ZADD', K.status_index, A.number, A.id)
redis.call('ZADD', K.category_index, A.number, A.id)
emit('experiment.retesting', A.tag, A.experiment_id,
  cjson.encode({experiment_id = A.experiment_id, retest_id = A.id, seed = tonumber(A.seed)}), A.experiment_traceparent)
if not A.run_s then
  redis.call('ZADD', K.open, clock(t + tonumber(A.patience_s)), A.id)
  return {'ok'}
end
reserve(K.retest, ms(A.run_s))
redis.call('HSET', K.retest, 'attempt', 1, 'queued_at', clock(t))
redis.call('HSET', K.attempts, '1:status', 'queued', '1:queued_at', clock(t))
enter_queue(K.retest, A.id, A.priority, A.agent, A.round)
emit('experiment.queued', A.tag, A.id, cjson.encode({experiment_id = A.id, attempt = 1}), A.experiment_traceparent)
return {'ok'}
