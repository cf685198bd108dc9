-- A run of a swarm's worker that is over: its worker is free, and its config has one run less in flight.
-- parts: leaders
-- keys: tag handed_out swarm_worker? configs? proposals?
-- args: id worker_id? fingerprint? led_by? returned? counter?
-- `led_by` is of a run with a value; `returned` is its config as a proposal, for another worker.
local RETURNED_FIRST = -2

local function end_hand_out(status)
  if not K.swarm_worker then return end
  local was_out = redis.call('ZREM', K.handed_out, A.id) == 1
  if was_out then
    redis.call('HINCRBY', K.configs, A.fingerprint .. ':in_flight', -1)
    redis.call('HINCRBY', K.swarm_worker, 'active', -1)
  end
  if was_out and A.returned then redis.call('ZADD', K.proposals, RETURNED_FIRST, A.returned) end
  if status ~= 'lost' then redis.call('HINCRBY', K.configs, A.fingerprint .. ':trials', 1) end
  if redis.call('HGET', K.swarm_worker, 'run_id') == A.id then redis.call('HDEL', K.swarm_worker, 'run_id') end
  local is_repeat = status == 'measured'
  local is_judged = status == 'keep' or status == 'discard'
  if is_judged or is_repeat or status == 'stopped' and A.counter then redis.call('HINCRBY', K.swarm_worker, 'runs', 1) end
  if is_repeat then redis.call('HINCRBY', K.tag, 'repeated', 1) end
  if A.led_by then enter_leader() end
end
