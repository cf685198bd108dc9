-- Shared by every script: Redis' clock, the lab's event stream, a hash from JSON, the status indexes.

-- What comes after the script's own arguments: the trace of the call that runs it.
local TRACE = table.remove(ARGV)

local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) + tonumber(t[2]) / 1000000
end

-- A time as text: microseconds are what TIME knows.
local function clock(t)
  return string.format('%.6f', t)
end

-- Seconds since 1970 as RFC 3339 in UTC (days to civil date: H. Hinnant, "chrono-compatible low-level date
-- algorithms").
local function rfc3339(t)
  local days, rest = math.floor(t / 86400), t % 86400
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%06.3fZ', year, month, doy - math.floor((153 * mp + 2) / 5) + 1,
    math.floor(rest / 3600), math.floor(rest % 3600 / 60), math.floor(rest % 60 * 1000) / 1000)
end

-- Append an event to the stream and tell the subscribers; data is JSON text. An experiment's events carry the trace
-- that it came with, all others that of the call.
local function emit(stream, kind, tag, subject, data, trace)
  trace = (trace or '') ~= '' and trace or TRACE
  local time = rfc3339(now())
  local id = redis.call('XADD', stream, '*', 'type', kind, 'time', time, 'tag', tag, 'subject', subject, 'data', data,
    'trace', trace)
  local lab = string.match(stream, '^{(.-)}')
  local message = string.format('{"id":%s,"type":%s,"time":%s,"lab":%s,"tag":%s,"subject":%s,"data":%s,"trace":%s}',
    cjson.encode(id), cjson.encode(kind), cjson.encode(time), cjson.encode(lab),
    tag == '' and 'null' or cjson.encode(tag), cjson.encode(subject), data,
    trace == '' and 'null' or cjson.encode(trace))
  redis.call('PUBLISH', 'nightjar:' .. lab .. ':' .. kind, message)
end

-- Set the fields of a hash from a JSON object whose values are all text.
local function put(key, text)
  if text == '' then return end
  for field, value in pairs(cjson.decode(text)) do
    redis.call('HSET', key, field, value)
  end
end

-- Move an experiment from one status to another: by status, and by status and category.
local function move(from, from_category, to, to_category, number, id)
  redis.call('ZREM', from, id)
  redis.call('ZREM', from_category, id)
  redis.call('ZADD', to, number, id)
  redis.call('ZADD', to_category, number, id)
end

-- Derive a GPU's status from its flags, the strongest first, and keep the index of idle GPUs equal to it.
local function settle(gpu, idle, events, gpu_id, t, reason)
  local f = redis.call('HMGET', gpu, 'status', 'offline', 'holder', 'sick', 'drained', 'unproven', 'leaving',
    'tripped')
  local status = f[2] and 'offline' or f[3] and 'training' or (f[4] or f[8]) and 'unhealthy'
    or (f[5] or f[6] or f[7]) and 'draining' or 'idle'
  if status == f[1] then return status end
  redis.call('HSET', gpu, 'status', status)
  if status == 'idle' then
    redis.call('HSET', gpu, 'idle_since', clock(t))
    redis.call('ZADD', idle, clock(t), gpu_id)
  else
    redis.call('HDEL', gpu, 'idle_since')
    redis.call('ZREM', idle, gpu_id)
  end
  if status ~= 'training' then
    local why = status == 'unhealthy' and (f[4] or f[8]) or reason
    emit(events, 'gpu.' .. status, '', gpu_id, cjson.encode({gpu_id = gpu_id, reason = why}))
  end
  return status
end

-- Ticks of a function that no handler has finished: how many are being handled, and how many nobody has read (at most
-- `most` are counted).
local function unhandled(ticks, group, most)
  if redis.call('EXISTS', ticks) == 0 then return 0, 0 end
  local handled, last = 0, '0-0'
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', ticks)) do
    local facts = {}
    for i = 1, #row, 2 do facts[row[i]] = row[i + 1] end
    if facts['name'] == group then handled, last = tonumber(facts['pending']), facts['last-delivered-id'] end
  end
  return handled, #redis.call('XRANGE', ticks, '(' .. last, '+', 'COUNT', most)
end

-- Put a tick before its function.
local function fire(schedule, ticks, name, t, scheduled, missed, by_hand)
  local data = string.format('{"scheduled":%s,"fired":%s,"missed":%d,"by_hand":%s}', scheduled, clock(t), missed, by_hand)
  redis.call('XADD', ticks, 'MAXLEN', '~', '1000', '*', 'type', 'cron.tick', 'time', rfc3339(t), 'tag', '',
    'subject', name, 'data', data, 'trace', '')
  redis.call('HSET', schedule, 'fired_scheduled', scheduled, 'fired_at', clock(t))
  redis.call('HINCRBY', schedule, by_hand == 'true' and 'by_hand' or 'fired', 1)
end

-- Put a tick that waited for an earlier one before its function, once that is handled.
local function release(schedule, ticks, name, t)
  local waiting = redis.call('HGET', schedule, 'waiting')
  if not waiting then return end
  local handled, unread = unhandled(ticks, name, 1)
  if handled + unread > 0 then return end
  redis.call('HDEL', schedule, 'waiting')
  fire(schedule, ticks, name, t, string.match(waiting, '^(%S+) (%S+) (%S+)$'))
end

-- Fire a tick as its overlap policy allows. Returns fired | waits | overlaps
local function fire_unless_overlapping(schedule, ticks, name, t, overlap, scheduled, missed, by_hand)
  release(schedule, ticks, name, t)
  local handled, unread = 0, 0
  if overlap ~= 'allow' then handled, unread = unhandled(ticks, name, 1) end
  if handled + unread == 0 then
    fire(schedule, ticks, name, t, scheduled, missed, by_hand)
    return 'fired'
  end
  if overlap ~= 'queue' or redis.call('HEXISTS', schedule, 'waiting') == 1 then return 'overlaps' end
  redis.call('HSET', schedule, 'waiting', scheduled .. ' ' .. missed .. ' ' .. by_hand)
  return 'waits'
end

-- Seconds as whole milliseconds, and back: only integers add up without losing bits.
local function ms(seconds)
  return math.floor(tonumber(seconds or '0') * 1000 + 0.5)
end

local function in_seconds(milliseconds)
  return string.format('%.3f', milliseconds / 1000)
end

-- Why a tag's budget has no room for so many more milliseconds and runs, or nil.
local function shortage(tag, more_ms, more_runs)
  local b = redis.call('HMGET', tag, 'budget_runs', 'spent_runs', 'reserved_runs', 'budget_gpu_seconds',
    'spent_gpu_seconds', 'reserved_gpu_seconds')
  local runs = tonumber(b[2] or '0') + tonumber(b[3] or '0')
  if b[1] and more_runs > 0 and runs + more_runs > tonumber(b[1]) then
    return {'exhausted', 'runs', b[1], b[2] or '0', b[3] or '0', tostring(more_runs)}
  end
  if b[4] and more_ms > 0 and ms(b[5]) + ms(b[6]) + more_ms > ms(b[4]) then
    return {'exhausted', 'gpu_seconds', b[4], b[5] or '0', b[6] or '0', in_seconds(more_ms)}
  end
end
