-- Who leads a swarm: each worker by its best run.
-- keys: worker_runs? leaders?
-- args: id worker_id? led_by?
-- `led_by` is its value less its worker's baseline, with lower = better.

local function enter_leader()
  redis.call('ZADD', K.worker_runs, A.led_by, A.id)
  redis.call('ZADD', K.leaders, 'LT', A.led_by, A.worker_id)
end
