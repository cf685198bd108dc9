-- The lease of a run on a GPU: its holder renews it, but not beyond its deadline, which the lab sets. A lease that an agent
-- acquired for itself has no deadline.
-- keys: gpu leases
-- args: lease_s

-- Extensions come on top of the stored deadline.
local function deadline_of(extended_s)
  local deadline = redis.call('HGET', K.gpu, 'deadline')
  return deadline and tonumber(deadline) + tonumber(extended_s or '0') or math.huge
end

-- The holder is told to stop. From the first time on it has one length of the lease for that.
local function hasten(t, extended_s)
  local ends, deadline = t + tonumber(A.lease_s), deadline_of(extended_s)
  if deadline < math.huge and ends < deadline then
    redis.call('HSET', K.gpu, 'deadline', clock(ends - tonumber(extended_s or '0')))
  end
end

-- Renew the lease; it does not end before `at_least`. False: its deadline has come.
local function prolong(t, gpu_id, extended_s, at_least)
  local deadline = deadline_of(extended_s)
  if t >= deadline then return false end
  local expiry = clock(math.min(math.max(t + tonumber(A.lease_s), tonumber(at_least or '0')), deadline))
  redis.call('HSET', K.gpu, 'lease_expires_at', expiry)
  redis.call('ZADD', K.leases, expiry, gpu_id)
  return true
end
