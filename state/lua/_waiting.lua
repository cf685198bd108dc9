-- Those of a tag that wait aside.
-- parts: baseline
-- keys: queued queues* parked*

-- Put them back into the queues, each in its old place; false where one is parked that was not looked for.
local function let_in()
  local found = 0
  for i, parked in ipairs(K.parked) do
    found = found + redis.call('ZCARD', parked) + redis.call('ZINTERCARD', 2, K.queues[i], K.queued)
  end
  if found ~= redis.call('ZCARD', K.queued) then return false end
  for i, parked in ipairs(K.parked) do
    local places = redis.call('ZRANGE', parked, 0, -1, 'WITHSCORES')
    for n = 1, #places, 2 do
      if not waits_for_baseline(places[n]) then
        redis.call('ZADD', K.queues[i], places[n + 1], places[n])
        redis.call('ZREM', parked, places[n])
      end
    end
  end
  return true
end
