-- A tag's budget books: what its experiments have reserved and spent, in whole milliseconds and runs.
-- parts: events
-- keys: tag
-- args: tag

-- Seconds as whole milliseconds, and back: only integers add up without losing bits.
local function ms(seconds)
  return math.floor(tonumber(seconds or '0') * 1000 + 0.5)
end

local function in_seconds(milliseconds)
  return string.format('%.3f', milliseconds / 1000)
end

-- Why the budget has no room for so many more milliseconds and runs:
-- {exhausted, gpu_seconds | runs, limit, spent, reserved, needed}, or nil.
local function shortage(more_ms, more_runs)
  local b = redis.call('HMGET', K.tag, 'budget_runs', 'spent_runs', 'reserved_runs', 'budget_gpu_seconds',
    'spent_gpu_seconds', 'reserved_gpu_seconds')
  local runs = tonumber(b[2] or '0') + tonumber(b[3] or '0')
  if b[1] and more_runs > 0 and runs + more_runs > tonumber(b[1]) then
    return {'exhausted', 'runs', b[1], b[2] or '0', b[3] or '0', tostring(more_runs)}
  end
  if b[4] and more_ms > 0 and ms(b[5]) + ms(b[6]) + more_ms > ms(b[4]) then
    return {'exhausted', 'gpu_seconds', b[4], b[5] or '0', b[6] or '0', in_seconds(more_ms)}
  end
end

-- Tell once when a limit is nearly used up; again only after the limit was changed.
local function warn(resource)
  local b = redis.call('HMGET', K.tag, 'budget_' .. resource, 'spent_' .. resource, 'reserved_' .. resource,
    'warned_' .. resource)
  local spent, reserved = b[2] or '0', b[3] or '0'
  if not b[1] or b[4] or tonumber(spent) + tonumber(reserved) < 0.8 * tonumber(b[1]) then return end
  redis.call('HSET', K.tag, 'warned_' .. resource, 'true')
  emit('tag.budget_warning', A.tag, A.tag, string.format('{"tag":%s,"resource":"%s","limit":%s,"spent":%s,"reserved":%s}',
    cjson.encode(A.tag), resource, b[1], spent, reserved))
end

-- Add to what the tag has reserved and spent.
local function book(reserved_ms, reserved_runs, spent_ms, spent_runs)
  local b = redis.call('HMGET', K.tag, 'reserved_gpu_seconds', 'spent_gpu_seconds')
  redis.call('HSET', K.tag, 'reserved_gpu_seconds', in_seconds(ms(b[1]) + reserved_ms), 'spent_gpu_seconds',
    in_seconds(ms(b[2]) + spent_ms))
  redis.call('HINCRBY', K.tag, 'reserved_runs', reserved_runs)
  redis.call('HINCRBY', K.tag, 'spent_runs', spent_runs)
  warn('gpu_seconds')
  warn('runs')
end

-- Set a run of so many milliseconds aside for an experiment; what it holds already counts.
local function reserve(experiment, run_ms)
  local held = redis.call('HGET', experiment, 'reserved_gpu_seconds')
  book(run_ms - ms(held or '0'), held and 0 or 1, 0, 0)
  redis.call('HSET', experiment, 'reserved_gpu_seconds', in_seconds(run_ms))
end

-- An experiment is over: what was set aside for it is free again, what was used is spent.
local function close_books(experiment, spent_ms, spent_runs)
  local held = redis.call('HGET', experiment, 'reserved_gpu_seconds')
  redis.call('HDEL', experiment, 'reserved_gpu_seconds')
  book(-ms(held or '0'), held and -1 or 0, spent_ms, spent_runs)
end

-- Milliseconds from an attempt's start to its end, both as text of Redis' clock; 0 where it never began.
local function lasted(started, ended)
  return started and math.max(ms(tonumber(ended) - tonumber(started)), 0) or 0
end
