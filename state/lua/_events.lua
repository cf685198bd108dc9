-- The lab's event stream: what happened is appended, and its subscribers are told. A move that appends an event stores
-- its values, which are counted with it.
-- keys: events

local EVENT_BYTES = 200
local uncounted = nil

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

-- Append an event; `data` is JSON text. It carries `traceparent` where one is given (an experiment's own), else that of
-- the call. Answers its id, time and trace.
local function append(kind, tag, subject, data, traceparent)
  local trace = traceparent or A.traceparent or ''
  local time = rfc3339(now())
  if K.stored then
    uncounted = uncounted or given_bytes()
    count_stored(uncounted + #data + EVENT_BYTES)
    uncounted = 0
  end
  local id = redis.call('XADD', K.events, '*', 'type', kind, 'time', time, 'tag', tag, 'subject', subject, 'data', data,
    'trace', trace)
  return id, time, trace
end

-- Append an event, and tell who subscribes to its type.
local function emit(kind, tag, subject, data, traceparent)
  local id, time, trace = append(kind, tag, subject, data, traceparent)
  local lab = string.match(K.events, '^{(.-)}')
  local message = string.format('{"id":%s,"type":%s,"time":%s,"lab":%s,"tag":%s,"subject":%s,"data":%s,"trace":%s}',
    cjson.encode(id), cjson.encode(kind), cjson.encode(time), cjson.encode(lab),
    tag == '' and 'null' or cjson.encode(tag), cjson.encode(subject), data,
    trace == '' and 'null' or cjson.encode(trace))
  redis.call('PUBLISH', 'nightjar:' .. lab .. ':' .. kind, message)
end
