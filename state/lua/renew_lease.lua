-- Prolong the lease of a running attempt and answer the lab's order; a tick (metric, progress) is kept.
-- keys: experiment gpu leases ticks
-- args: id fence lease_s metric? progress? most
-- At most `most` ticks are kept.
-- returns: continue | stop | lost
local e = redis.call('HMGET', K.experiment, 'status', 'fence', 'stopping')
local g = redis.call('HMGET', K.gpu, 'holder', 'fence', 'gpu_id')
if e[1] ~= 'running' or e[2] ~= A.fence or g[1] ~= A.id or g[2] ~= A.fence then return 'lost' end
local t = now()
local expiry = clock(t + tonumber(A.lease_s))
redis.call('HSET', K.gpu, 'lease_expires_at', expiry)
redis.call('ZADD', K.leases, expiry, g[3])
if A.metric then
  redis.call('HSET', K.experiment, 'last_metric', A.metric, 'last_progress', A.progress)
  redis.call('RPUSH', K.ticks, '[' .. A.progress .. ',' .. A.metric .. ',' .. clock(t) .. ']')
  redis.call('LTRIM', K.ticks, -tonumber(A.most), -1)
end
return e[3] == 'true' and 'stop' or 'continue'
