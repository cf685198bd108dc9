-- End a lease whose holder is gone: the GPU's flags say why; its experiment waits again, or ends.
-- The reasons silent and expired are judged once more by Redis' clock.
-- parts: experiment
-- keys: gpu leases
-- args: gpu_id gpu_fence why reason stale_s flags* cleared*
-- args: stopping? next_attempt? forget_class?
-- returns: ok | stale
local g = redis.call('HMGET', K.gpu, 'fence', 'holder', 'heartbeat_at', 'lease_expires_at')
if g[1] ~= A.gpu_fence or g[2] ~= A.id then return 'stale' end
local t = now()
if A.why == 'silent' and t - tonumber(g[3]) < tonumber(A.stale_s) then return 'stale' end
if A.why == 'expired' and t < tonumber(g[4] or '0') then return 'stale' end
local concerned = A.status or A.next_attempt
if concerned and (is_stale() or changed(K.experiment, 'stopping', 'false', A.stopping)) then return 'stale' end

-- While the lab was off, the GPU was not used: a run that goes on renews its lease.
local at, used_until = clock(t), clock(math.min(t, tonumber(g[4] or t)))
redis.call('HDEL', K.gpu, 'holder', 'leased_at', 'lease_expires_at', 'deadline', 'runner', unpack(A.cleared))
redis.call('ZREM', K.leases, A.gpu_id)
if #A.flags > 0 then redis.call('HSET', K.gpu, unpack(A.flags)) end
derive_status(K.gpu, A.gpu_id, t, A.reason)
if not concerned then return 'ok' end

redis.call('HDEL', K.experiment, 'gpu_id', 'started_at')
redis.call('HSET', K.experiment, 'fence', 0)
if A.status then
  end_experiment(t, used_until)
  return 'ok'
end
redis.call('ZREM', K.starting, A.id)
if A.next_attempt ~= A.attempt then
  -- What was set aside for it stays so for its next attempt, but not what it has outlasted; what it used is spent.
  local e = redis.call('HMGET', K.experiment, 'reserved_gpu_seconds', 'budget_s')
  if e[1] and e[2] and ms(e[1]) > ms(e[2]) then reserve(K.experiment, ms(e[2])) end
  book(0, 0, lasted(redis.call('HGET', K.attempts, A.attempt .. ':started_at'), used_until), 0)
  redis.call('HSET', K.attempts, A.attempt .. ':status', 'lost', A.attempt .. ':ended_at', used_until,
    A.next_attempt .. ':queued_at', at)
end
redis.call('HSET', K.attempts, A.attempt .. ':reason', A.reason)
redis.call('HSET', K.attempts, A.next_attempt .. ':status', 'queued')
if A.forget_class then redis.call('HDEL', K.experiment, 'gpu_class') end
redis.call('HSET', K.experiment, 'status', 'queued', 'queued_at', at, 'attempt', A.next_attempt)
relist()
return_to_queue(K.experiment, A.id)
emit(A.event, A.tag, A.id, A.event_data, A.experiment_traceparent)
return 'ok'
