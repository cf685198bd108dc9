-- Register an experiment and have it trained: it waits in the queue, its run set aside from the tag's budget. With
-- `baseline` it is the tag's baseline, and what waits already waits for it.
-- parts: registration queue waiting
-- keys: attempts rivals*
-- args: baseline? run_s agent priority own_round? served_round round
-- `attempts` is what the key of its attempts begins with; `rivals` are queues that it may have to wait for.
-- Returns {ok, number, first experiment with this code or empty, parents, place in the queue} | {stale} |
--   {quota_full, seconds} | {turn, the rounds now} | {exhausted, gpu_seconds | runs | patch_bytes, limit, spent, reserved, needed}
local t = now()
if is_stale_entry(t) or A.baseline and (has_baseline() or not are_all_found()) then return {'stale'} end
local refusal = overflow() or other_rounds(A.agent, A.own_round, A.served_round) or shortage(ms(A.run_s), 1)
if refusal then return refusal end
local at = clock(t)
local id, number, experiment, first, parents = register('queued', 1, at)
redis.call('HSET', experiment, 'queued_at', at)
redis.call('HSET', K.attempts .. number, '1:status', 'queued', '1:queued_at', at)
reserve(experiment, ms(A.run_s))
emit('experiment.queued', A.tag, id, cjson.encode({experiment_id = id, attempt = 1}), A.experiment_traceparent)
if A.baseline then
  begin_baseline(id, at)
  put_aside()
end
enter_queue(experiment, id, A.priority, A.agent, A.round)
return {'ok', number, first, parents, position_in(waiting_room(id), id, K.rivals)}
