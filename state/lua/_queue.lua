-- The wait queue: places in it, and whose turn is when. Rounds are decided in Python (`functions/pool/rules/lending.py`).
-- parts: baseline
-- keys: queue parked? queue_clock? paused? tag?

-- A place: priority (0 to 7, higher first), then the round, then the order of arrival.
local function place(priority, round, seq)
  return string.format('%.0f', (7 - priority) * 1e15 + round * 1e6 + seq % 1000000)
end

-- Where an experiment of the tag waits: aside while the tag is paused, or its baseline has not ended.
local function waiting_room(id)
  local aside = redis.call('HEXISTS', K.tag, 'paused_at') == 1 or waits_for_baseline(id)
  return aside and K.parked or K.queue
end

-- The rounds, where they are no longer those that a turn was decided on: {turn, the agent's own or empty, that served}.
local function other_rounds(agent, own_round, served_round)
  local clock = redis.call('HMGET', K.queue_clock, 'agent:' .. agent, 'round')
  local own, served = clock[1] or '', clock[2] or '0'
  if own ~= (own_round or '') or served ~= served_round then return {'turn', own, served} end
end

-- Wait from now on, in this round of this agent. Without a round it takes no agent's turn, and joins the round that is
-- served now.
local function enter_queue(experiment, id, priority, agent, round)
  local seq = redis.call('HINCRBY', K.queue_clock, 'seq', 1)
  if round then
    redis.call('HSET', experiment, 'queue_round', round)
    redis.call('HSET', K.queue_clock, 'agent:' .. agent, round)
  else
    round = redis.call('HGET', K.queue_clock, 'round') or '0'
  end
  redis.call('ZADD', waiting_room(id), place(tonumber(priority), tonumber(round), seq), id)
end

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

-- The place of `id` in a queue, counted from 1, behind those of the queues `rivals` that come before it; 0 where it does
-- not wait there.
local function position_in(queue, id, rivals)
  local score, before = redis.call('ZSCORE', queue, id), redis.call('ZRANK', queue, id)
  if not score then return 0 end
  for _, rival in ipairs(rivals) do before = before + redis.call('ZCOUNT', rival, '-inf', '(' .. score) end
  return before + 1
end
