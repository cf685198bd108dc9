-- A run's reports: the newest are kept, and of a run that was extended the one nearest to the end of its budget.
-- keys: experiment ticks
-- args: metric? progress? is_base? most
-- At most `most` reports are kept; `is_base`: this one is of the run's own budget, not of its extension.

local function keep_tick(t)
  local base = redis.call('HGET', K.experiment, 'base_progress')
  redis.call('HSET', K.experiment, 'last_metric', A.metric, 'last_progress', A.progress)
  if A.is_base and base and math.abs(A.progress - 1) < math.abs(base - 1) then
    redis.call('HSET', K.experiment, 'base_metric', A.metric, 'base_progress', A.progress)
  end
  redis.call('RPUSH', K.ticks, '[' .. A.progress .. ',' .. A.metric .. ',' .. clock(t) .. ']')
  redis.call('LTRIM', K.ticks, -tonumber(A.most), -1)
end
