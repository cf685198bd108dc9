-- A run's reports: the newest are kept, and of a run that was given more time the one nearest to the end of its budget.
-- parts: events
-- keys: experiment tag ticks
-- args: id tag metric? progress? tick_source? is_base? most
-- At most `most` reports are kept; `is_base`: this one is of the run's own budget, not of its extension.

local function keep_base()
  local base = redis.call('HGET', K.experiment, 'base_progress')
  if base and math.abs(A.progress - 1) < math.abs(base - 1) then
    redis.call('HSET', K.experiment, 'base_metric', A.metric, 'base_progress', A.progress)
  end
end

-- A run counts as extended from its first report beyond its budget, once however often it is begun.
local function count_extension()
  local e = redis.call('HMGET', K.experiment, 'extended_s', 'used_extension', 'traceparent')
  if not e[1] or e[2] then return end
  redis.call('HSET', K.experiment, 'used_extension', 'true')
  redis.call('HINCRBY', K.tag, 'extended', 1)
  emit('run.extended', A.tag, A.id, string.format('{"experiment_id":"%s","metric":%s,"progress":%s,"extra_s":%s}',
    A.id, A.metric, A.progress, e[1]), e[3] or nil)
end

local function keep_tick(t)
  if A.is_base then keep_base() else count_extension() end
  redis.call('HSET', K.experiment, 'last_metric', A.metric, 'last_progress', A.progress, 'tick_source', A.tick_source)
  redis.call('RPUSH', K.ticks, '[' .. A.progress .. ',' .. A.metric .. ',' .. clock(t) .. ']')
  redis.call('LTRIM', K.ticks, -tonumber(A.most), -1)
end
