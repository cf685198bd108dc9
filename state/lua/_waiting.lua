-- Those of a tag that wait: in the queues, or aside.
-- keys: tag? queued queues* asides*

-- Whether it has to wait for the baseline of its tag: it is neither that nor a retest of it.
local function waits_for_baseline(id)
  local t = redis.call('HMGET', K.tag, 'awaits_baseline', 'baseline_id')
  return t[1] == 'true' and id ~= t[2] and string.sub(id, 1, #t[2] + 1) ~= t[2] .. '.'
end

-- Whether all of them are where they were looked for.
local function are_all_found()
  local found = 0
  for i, aside in ipairs(K.asides) do
    found = found + redis.call('ZCARD', aside) + redis.call('ZINTERCARD', 2, K.queues[i], K.queued)
  end
  return found == redis.call('ZCARD', K.queued)
end

-- Put them back into the queues, each in its old place, but for those that wait for the baseline.
local function let_in()
  for i, aside in ipairs(K.asides) do
    local places = redis.call('ZRANGE', aside, 0, -1, 'WITHSCORES')
    for n = 1, #places, 2 do
      if not waits_for_baseline(places[n]) then
        redis.call('ZADD', K.queues[i], places[n + 1], places[n])
        redis.call('ZREM', aside, places[n])
      end
    end
  end
end

-- Take those out of the queues, each with its place, that wait for the baseline; or all of them.
local function put_aside(all)
  for i, queue in ipairs(K.queues) do
    local places = redis.call('ZINTER', 2, queue, K.queued, 'WEIGHTS', 1, 0, 'WITHSCORES')
    for n = 1, #places, 2 do
      if all or waits_for_baseline(places[n]) then
        redis.call('ZADD', K.asides[i], places[n + 1], places[n])
        redis.call('ZREM', queue, places[n])
      end
    end
  end
end
