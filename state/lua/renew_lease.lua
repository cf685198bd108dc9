-- Prolong the lease of a running attempt and answer the lab's order; a tick (metric, progress) is kept. A run that
-- reaches its tag's budget is to stop.
-- parts: books
-- keys: experiment gpu leases ticks
-- args: id fence lease_s metric? progress? is_base? most used_up
-- At most `most` ticks are kept; `used_up` is the reason where the budget is. Of a run that was extended, the report
-- nearest to the end of its budget is remembered, of those with `is_base`.
-- returns: continue | stop | lost
local e = redis.call('HMGET', K.experiment, 'status', 'fence', 'stopping', 'started_at', 'base_progress')
local g = redis.call('HMGET', K.gpu, 'holder', 'fence', 'gpu_id')
if e[1] ~= 'running' or e[2] ~= A.fence or g[1] ~= A.id or g[2] ~= A.fence then return 'lost' end
local t = now()
local expiry = clock(t + tonumber(A.lease_s))
redis.call('HSET', K.gpu, 'lease_expires_at', expiry)
redis.call('ZADD', K.leases, expiry, g[3])
if A.metric then
  redis.call('HSET', K.experiment, 'last_metric', A.metric, 'last_progress', A.progress)
  if A.is_base and e[5] and math.abs(A.progress - 1) < math.abs(e[5] - 1) then
    redis.call('HSET', K.experiment, 'base_metric', A.metric, 'base_progress', A.progress)
  end
  redis.call('RPUSH', K.ticks, '[' .. A.progress .. ',' .. A.metric .. ',' .. clock(t) .. ']')
  redis.call('LTRIM', K.ticks, -tonumber(A.most), -1)
end
if e[3] == 'true' then return 'stop' end
if outlast(K.experiment, lasted(e[4], t)) then return 'continue' end
redis.call('HSET', K.experiment, 'stopping', 'true', 'stop_reason', A.used_up)
return 'stop'
