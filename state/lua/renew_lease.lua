-- Prolong the lease of a running attempt and answer the lab's order; a tick (metric, progress) is kept. A run that
-- reaches its tag's budget is to stop. At its deadline the lease is lost.
-- parts: books ticks lease
-- keys: experiment
-- args: id fence used_up
-- `used_up` is the reason where the budget is.
-- returns: continue | stop | lost
local e = redis.call('HMGET', K.experiment, 'status', 'fence', 'stopping', 'started_at', 'extended_s')
local g = redis.call('HMGET', K.gpu, 'holder', 'fence', 'gpu_id')
if e[1] ~= 'running' or e[2] ~= A.fence or g[1] ~= A.id or g[2] ~= A.fence then return 'lost' end
local t = now()
if e[3] ~= 'true' and not outlast(K.experiment, lasted(e[4], t)) then
  redis.call('HSET', K.experiment, 'stopping', 'true', 'stop_reason', A.used_up)
  e[3] = 'true'
end
if e[3] == 'true' then hasten(t, e[5]) end
if not prolong(t, g[3], e[5]) then return 'lost' end
if A.metric then keep_tick(t) end
return e[3] == 'true' and 'stop' or 'continue'
