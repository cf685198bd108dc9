-- The wait queue: places in it, and whose turn is when. Experiments enter it in `state/experiments/queueing.py`.
-- keys: queue parked? queue_clock? paused? baselines?

-- Leave the queue for a GPU: its round is served now. Agents whose last round is over are forgotten; all are, once the
-- common queue is empty and nothing waits aside, with its place.
local function take_turn(experiment, id)
  if redis.call('ZREM', K.queue, id) == 0 then return end
  local e = redis.call('HMGET', experiment, 'queue_round', 'pinned_gpu')
  local round, served = tonumber(e[1] or '-1'), tonumber(redis.call('HGET', K.queue_clock, 'round') or '0')
  redis.call('HDEL', experiment, 'queue_round')
  local is_over = not e[2] and redis.call('ZCARD', K.queue) == 0 and redis.call('EXISTS', K.paused, K.baselines) == 0
  if round > served then
    redis.call('HSET', K.queue_clock, 'round', round)
  elseif not is_over then
    return
  end
  local clock = redis.call('HGETALL', K.queue_clock)
  for i = 1, #clock, 2 do
    if string.sub(clock[i], 1, 6) == 'agent:' and (is_over or tonumber(clock[i + 1]) < round) then
      redis.call('HDEL', K.queue_clock, clock[i])
    end
  end
end

-- The place of `id` in a queue, counted from 1, behind earlier ones in the queues `rivals`; 0 if it does not wait there.
local function position_in(queue, id, rivals)
  local score, before = redis.call('ZSCORE', queue, id), redis.call('ZRANK', queue, id)
  if not score then return 0 end
  for _, rival in ipairs(rivals) do before = before + redis.call('ZCOUNT', rival, '-inf', '(' .. score) end
  return before + 1
end
