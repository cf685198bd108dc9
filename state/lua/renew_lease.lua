-- Prolong the lease of a running attempt and answer the lab's order; a tick (metric, progress) is kept. A run that
-- reaches its tag's budget is to stop.
-- parts: books ticks
-- keys: experiment gpu leases
-- args: id fence lease_s used_up
-- `used_up` is the reason where the budget is.
-- returns: continue | stop | lost
local e = redis.call('HMGET', K.experiment, 'status', 'fence', 'stopping', 'started_at')
local g = redis.call('HMGET', K.gpu, 'holder', 'fence', 'gpu_id')
if e[1] ~= 'running' or e[2] ~= A.fence or g[1] ~= A.id or g[2] ~= A.fence then return 'lost' end
local t = now()
local expiry = clock(t + tonumber(A.lease_s))
redis.call('HSET', K.gpu, 'lease_expires_at', expiry)
redis.call('ZADD', K.leases, expiry, g[3])
if A.metric then keep_tick(t) end
if e[3] == 'true' then return 'stop' end
if outlast(K.experiment, lasted(e[4], t)) then return 'continue' end
redis.call('HSET', K.experiment, 'stopping', 'true', 'stop_reason', A.used_up)
return 'stop'
