-- Who leads a swarm: each worker by its best run.
-- keys: worker_runs? leaders?
-- args: id worker_id? led_by?
-- `led_by` is its value less its worker's baseline, with lower = better.

local function enter_leader()
  redis.call('ZADD', K.worker_runs, A.led_by, A.id)
  redis.call('ZADD', K.leaders, 'LT', A.led_by, A.worker_id)
end

-- A run whose result was taken back leads nobody.
local function leave_leaders()
  if not K.worker_runs or redis.call('ZREM', K.worker_runs, A.id) == 0 then return end
  local best = redis.call('ZRANGE', K.worker_runs, 0, 0, 'WITHSCORES')
  if best[1] then redis.call('ZADD', K.leaders, best[2], A.worker_id)
  else redis.call('ZREM', K.leaders, A.worker_id) end
end
