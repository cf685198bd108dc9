-- Firings of the clock: each waits in its function's stream for a process of its lane.
-- parts: events
-- keys: schedule firings
-- args: function

-- Returns two counts of unfinished firings: those that a handler has read, and those that wait unread (at most `most`).
local function unhandled(most)
  if redis.call('EXISTS', K.firings) == 0 then return 0, 0 end
  local handled, last = 0, '0-0'
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', K.firings)) do
    local facts = {}
    for i = 1, #row, 2 do facts[row[i]] = row[i + 1] end
    if facts['name'] == A['function'] then handled, last = tonumber(facts['pending']), facts['last-delivered-id'] end
  end
  return handled, #redis.call('XRANGE', K.firings, '(' .. last, '+', 'COUNT', most)
end

-- Put a firing before its function.
local function fire(t, scheduled, missed, by_hand)
  local data = string.format('{"scheduled":%s,"fired":%s,"missed":%d,"by_hand":%s}', scheduled, clock(t), missed, by_hand)
  redis.call('XADD', K.firings, 'MAXLEN', '~', '1000', '*', 'type', 'cron.tick', 'time', rfc3339(t), 'tag', '',
    'subject', A['function'], 'data', data, 'trace', '')
  redis.call('HSET', K.schedule, 'fired_scheduled', scheduled, 'fired_at', clock(t))
  redis.call('HINCRBY', K.schedule, by_hand == 'true' and 'by_hand' or 'fired', 1)
end

-- Put the waiting firing before its function, if the earlier one is handled.
local function release(t)
  local waiting = redis.call('HGET', K.schedule, 'waiting')
  if not waiting then return end
  local handled, unread = unhandled(1)
  if handled + unread > 0 then return end
  redis.call('HDEL', K.schedule, 'waiting')
  fire(t, string.match(waiting, '^(%S+) (%S+) (%S+)$'))
end

-- Fire, or wait, or drop it, as the overlap policy says. Returns fired | waits | overlaps
local function fire_unless_overlapping(t, overlap, scheduled, missed, by_hand)
  release(t)
  local handled, unread = 0, 0
  if overlap ~= 'allow' then handled, unread = unhandled(1) end
  if handled + unread == 0 then
    fire(t, scheduled, missed, by_hand)
    return 'fired'
  end
  if overlap ~= 'queue' or redis.call('HEXISTS', K.schedule, 'waiting') == 1 then return 'overlaps' end
  redis.call('HSET', K.schedule, 'waiting', scheduled .. ' ' .. missed .. ' ' .. by_hand)
  return 'waits'
end
