-- End a lease whose holder is gone: the attempt is lost, the experiment waits again, the GPU's flags say why.
-- KEYS  1 GPU  2 experiment  3 tag  4 idle GPUs  5 leases  6 attempts  7 queue  8 events  9 starting
--       10 status leased  11 same of its category  12 status running  13 same  14 status queued  15 same
--       16 status lost  17 same  18 status stopped  19 same  20 where it is parked while its tag is paused
--       21 selection that it is made from, the experiment where there is none  22 open selections  23 its trace, the same
--       24 live traces  25 traces
-- ARGV  1 gpu  2 id  3 number  4 tag  5 fence  6 why: silent | expired | dead | unproven  7 reason  8 how many attempts there may
--       be  9 priority  10 trace  11 seconds without heartbeat that make a GPU silent
-- Returns {stale} | {ok, experiment's status or empty}
local g = redis.call('HMGET', KEYS[1], 'fence', 'holder', 'heartbeat_at', 'lease_expires_at', 'runner')
if g[1] ~= ARGV[5] or g[2] ~= ARGV[2] then return {'stale'} end
local at = now()
local t = clock(at)
-- What the sweep read may be old: a heartbeat or a renewal since then saves the lease.
if ARGV[6] == 'silent' and at - tonumber(g[3]) < tonumber(ARGV[11]) then return {'stale'} end
if ARGV[6] == 'expired' and at < tonumber(g[4] or '0') then return {'stale'} end
local id = ARGV[2]
local e = redis.call('HMGET', KEYS[2], 'status', 'attempt', 'fence', 'stopping', 'retest_of')
local ours = (e[1] == 'leased' or e[1] == 'running') and e[3] == ARGV[5]
redis.call('HDEL', KEYS[1], 'holder', 'leased_at', 'lease_expires_at', 'runner')
redis.call('ZREM', KEYS[5], ARGV[1])
if ARGV[6] == 'silent' then redis.call('HSET', KEYS[1], 'offline', 'true') end
-- `dead` is the word of its keeper that nothing of the run is left; else one that a worker began may still be there.
if ARGV[6] ~= 'dead' and g[5] then redis.call('HSET', KEYS[1], 'unproven', 'true') end
if ARGV[6] == 'dead' then redis.call('HDEL', KEYS[1], 'unproven', 'footprint') end
local not_begun = ours and e[1] == 'leased'
if ARGV[6] == 'expired' and not_begun then
  redis.call('HSET', KEYS[1], 'sick', 'its worker did not begin a run that it was leased for', 'good_samples', 0)
end
settle(KEYS[1], KEYS[4], KEYS[8], ARGV[1], at, ARGV[7])

if not ours then return {'ok', ''} end
local from = e[1] == 'leased' and 10 or 12
redis.call('ZREM', KEYS[9], id)
redis.call('HDEL', KEYS[2], 'gpu_id', 'started_at')
redis.call('HSET', KEYS[2], 'fence', 0)
local started = redis.call('HGET', KEYS[6], e[2] .. ':started_at')
local paused = redis.call('HEXISTS', KEYS[3], 'paused_at') == 1
if e[4] == 'true' then
  redis.call('HSET', KEYS[2], 'status', 'stopped', 'finished_at', t)
  redis.call('HSET', KEYS[6], e[2] .. ':status', 'stopped', e[2] .. ':ended_at', t, e[2] .. ':reason', ARGV[7])
  if not e[5] then redis.call('HINCRBY', KEYS[3], 'stopped', 1) end
  local ran = (started or tonumber(e[2]) > 1) and 1 or 0
  settle_books(KEYS[3], KEYS[8], ARGV[4], KEYS[2], lasted(started, t), ran)
  move(KEYS[from], KEYS[from + 1], KEYS[18], KEYS[19], ARGV[3], id)
  emit(KEYS[8], e[5] and 'experiment.retested' or 'experiment.finished', ARGV[4], id,
    cjson.encode({experiment_id = id, status = 'stopped', reason = ARGV[7]}), ARGV[10])
  close_selection(KEYS[21], KEYS[22], KEYS[23], KEYS[24], KEYS[25], KEYS[8], ARGV[4], 'released', ARGV[7], at)
  return {'ok', 'stopped'}
end
if not_begun then
  -- Nothing was tried yet: the same attempt waits for another GPU.
  redis.call('HSET', KEYS[2], 'status', 'queued', 'queued_at', t)
  redis.call('HSET', KEYS[6], e[2] .. ':status', 'queued', e[2] .. ':reason', ARGV[7])
  move(KEYS[from], KEYS[from + 1], KEYS[14], KEYS[15], ARGV[3], id)
  redis.call('ZADD', KEYS[paused and 20 or 7], place(tonumber(ARGV[9]), 0, 0), id)
  emit(KEYS[8], 'experiment.queued', ARGV[4], id,
    cjson.encode({experiment_id = id, attempt = tonumber(e[2]), reason = ARGV[7]}), ARGV[10])
  return {'ok', 'queued'}
end
redis.call('HSET', KEYS[6], e[2] .. ':status', 'lost', e[2] .. ':ended_at', t, e[2] .. ':reason', ARGV[7])
if tonumber(e[2]) >= tonumber(ARGV[8]) then
  redis.call('HSET', KEYS[2], 'status', 'lost', 'finished_at', t, 'error', ARGV[7])
  if not e[5] then redis.call('HINCRBY', KEYS[3], 'lost', 1) end
  settle_books(KEYS[3], KEYS[8], ARGV[4], KEYS[2], lasted(started, t), 1)
  move(KEYS[from], KEYS[from + 1], KEYS[16], KEYS[17], ARGV[3], id)
  emit(KEYS[8], e[5] and 'experiment.retested' or 'experiment.lost', ARGV[4], id,
    cjson.encode({experiment_id = id, status = 'lost', attempt = tonumber(e[2]), reason = ARGV[7]}), ARGV[10])
  close_selection(KEYS[21], KEYS[22], KEYS[23], KEYS[24], KEYS[25], KEYS[8], ARGV[4], 'expired', ARGV[7], at)
  return {'ok', 'lost'}
end
-- What was set aside for it stays so for its next attempt; what this one used is spent.
book(KEYS[3], KEYS[8], ARGV[4], 0, 0, lasted(started, t), 0)
local attempt = redis.call('HINCRBY', KEYS[2], 'attempt', 1)
redis.call('HSET', KEYS[2], 'status', 'queued', 'queued_at', t)
redis.call('HSET', KEYS[6], attempt .. ':status', 'queued', attempt .. ':queued_at', t)
move(KEYS[from], KEYS[from + 1], KEYS[14], KEYS[15], ARGV[3], id)
-- It waited its turn once already: in front of its priority.
redis.call('ZADD', KEYS[paused and 20 or 7], place(tonumber(ARGV[9]), 0, 0), id)
emit(KEYS[8], 'experiment.queued', ARGV[4], id,
  cjson.encode({experiment_id = id, attempt = attempt, reason = ARGV[7]}), ARGV[10])
return {'ok', 'queued'}
