-- A tag's budget books: what its experiments have reserved and spent, in whole milliseconds and runs.
-- parts: events
-- keys: tag
-- args: tag warn_at

-- Seconds as whole milliseconds, and back: only integers add up without losing bits.
local function ms(seconds)
  return math.floor(tonumber(seconds or '0') * 1000 + 0.5)
end

local function in_seconds(milliseconds)
  return string.format('%.3f', milliseconds / 1000)
end

-- What is reserved and spent, in seconds and runs, with the limits and whether their warning was given.
local function read_books()
  local b = redis.call('HMGET', K.tag, 'reserved_gpu_ms', 'spent_gpu_ms', 'reserved_runs', 'spent_runs',
    'budget_gpu_seconds', 'budget_runs', 'warned_gpu_seconds', 'warned_runs')
  return {
    gpu_seconds = {reserved = in_seconds(b[1] or '0'), spent = in_seconds(b[2] or '0'), limit = b[5], warned = b[7]},
    runs = {reserved = b[3] or '0', spent = b[4] or '0', limit = b[6], warned = b[8]},
  }
end

-- Why the budget has no room for so many more milliseconds and runs:
-- {exhausted, gpu_seconds | runs, limit, spent, reserved, needed}, or nil.
local function shortage(more_ms, more_runs)
  local books = read_books()
  local runs, seconds = books.runs, books.gpu_seconds
  if runs.limit and more_runs > 0 and runs.spent + runs.reserved + more_runs > tonumber(runs.limit) then
    return {'exhausted', 'runs', runs.limit, runs.spent, runs.reserved, tostring(more_runs)}
  end
  if seconds.limit and more_ms > 0 and ms(seconds.spent) + ms(seconds.reserved) + more_ms > ms(seconds.limit) then
    return {'exhausted', 'gpu_seconds', seconds.limit, seconds.spent, seconds.reserved, in_seconds(more_ms)}
  end
end

-- Tell once that the share `warn_at` of a limit is spent or reserved; again only after the limit was changed.
local function warn(resource, b)
  if not b.limit or b.warned or b.spent + b.reserved < A.warn_at * b.limit then return end
  redis.call('HSET', K.tag, 'warned_' .. resource, 'true')
  emit('tag.budget_warning', A.tag, A.tag, string.format('{"tag":%s,"resource":"%s","limit":%s,"spent":%s,"reserved":%s}',
    cjson.encode(A.tag), resource, b.limit, b.spent, b.reserved))
end

-- Add to what the tag has reserved and spent.
local function book(reserved_ms, reserved_runs, spent_ms, spent_runs)
  redis.call('HINCRBY', K.tag, 'reserved_gpu_ms', string.format('%d', reserved_ms))
  redis.call('HINCRBY', K.tag, 'spent_gpu_ms', string.format('%d', spent_ms))
  redis.call('HINCRBY', K.tag, 'reserved_runs', reserved_runs)
  redis.call('HINCRBY', K.tag, 'spent_runs', spent_runs)
  local books = read_books()
  warn('gpu_seconds', books.gpu_seconds)
  warn('runs', books.runs)
end

-- Set a run of so many milliseconds aside for an experiment; what it holds already counts.
local function reserve(experiment, run_ms)
  local held = redis.call('HGET', experiment, 'reserved_gpu_seconds')
  book(run_ms - ms(held or '0'), held and 0 or 1, 0, 0)
  redis.call('HSET', experiment, 'reserved_gpu_seconds', in_seconds(run_ms))
end

-- Have a run of so many milliseconds set aside more, where it outlasts what it has. False: its tag's budget has no room
-- for it any more, so the run has reached it.
local function outlast(experiment, run_ms)
  local seconds = read_books().gpu_seconds
  if not seconds.limit then return true end
  local held = ms(redis.call('HGET', experiment, 'reserved_gpu_seconds'))
  if run_ms <= held then return ms(seconds.spent) + run_ms < ms(seconds.limit) end
  if shortage(run_ms - held, 0) then return false end
  reserve(experiment, run_ms)
  return true
end

-- Milliseconds from an attempt's start to its end, both as text of Redis' clock; 0 where it never began.
local function lasted(started, ended)
  return started and math.max(ms(tonumber(ended) - tonumber(started)), 0) or 0
end
