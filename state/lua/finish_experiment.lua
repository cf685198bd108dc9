-- The one way into a final status: counters, indexes, best, near misses, crash count, stored answer and event.
-- A retest is over without being counted: it is evidence for the experiment that it repeats.
-- KEYS  1 experiment  2 tag  3 best under its comparability key  4 near misses  5 finish order  6 categories
--       7 crashes  8 status before  9 same of its category  10 status after  11 same of its category  12 open
--       13 attempts  14 queue it waits in  15 starting  16 GPU it ran on (the crashes key where none)  17 events
--       18 queue clock  19 idle GPUs  20 where it is parked while its tag is paused  21 noise of its tag and GPU class
--       22 forest  23 trace, the experiment where it has none  24 selection, the same  25 open selections  26 live traces
--       27 traces  28... traces that a kept merge ends
-- ARGV  1 id  2 number  3 tag  4 category  5 expected status  6 expected attempt  7 expected fence
--       8 expected version of best, empty where it does not matter  9 expected crashes in a row, same
--       10 expected version of the tag's main key, same  11 new status  12 fields as JSON
--       13 new fields of the best as JSON, or empty
--       14 near-miss score, or empty  15 tag fields as JSON, or empty  16 training seconds  17 crash count: count |
--       worker (an infra fault: the GPU's alone) | reset | keep  18 event data  19 trace  20 best event data, or empty
--       where the best stays the same experiment
--       21 crashes in a row that take a GPU out, empty where this is no crash  22 seconds that it is out for, doubled with
--       each time  23 most seconds  24 its code among the noise, empty where this is no value  25 expected runs of that
--       code, empty for none  26 the same with this run  27 squared deviations that this run adds, or
--       empty where it says nothing of the noise
--       28 fields of its trace as JSON, empty where this is no node of one  29 expected version of the trace  30 expected
--       epoch  31 status of the trace after  32 why it ends, or empty  33 how its selection ends  34 expected
--       versions of the traces that a kept merge ends, as JSON
-- Returns ok | stale
local id, status = ARGV[1], ARGV[11]
local e = redis.call('HMGET', KEYS[1], 'status', 'attempt', 'fence')
if e[1] ~= ARGV[5] or e[2] ~= ARGV[6] or e[3] ~= ARGV[7] then return 'stale' end
if ARGV[8] ~= '' and (redis.call('HGET', KEYS[3], 'version') or '0') ~= ARGV[8] then return 'stale' end
if ARGV[9] ~= '' and (redis.call('HGET', KEYS[7], 'consecutive') or '0') ~= ARGV[9] then return 'stale' end
if ARGV[10] ~= '' and (redis.call('HGET', KEYS[2], 'key_version') or '0') ~= ARGV[10] then return 'stale' end
if ARGV[24] ~= '' and (redis.call('HGET', KEYS[21], ARGV[24]) or '') ~= ARGV[25] then return 'stale' end
if ARGV[28] ~= '' then
  if (redis.call('HGET', KEYS[23], 'version') or '0') ~= ARGV[29] then return 'stale' end
  if (redis.call('HGET', KEYS[22], 'epoch') or '1') ~= ARGV[30] then return 'stale' end
  for i = 28, #KEYS do
    local source = redis.call('HMGET', KEYS[i], 'status', 'version')
    if source[1] ~= 'live' or source[2] ~= cjson.decode(ARGV[34])[i - 27] then return 'stale' end
  end
end

local t = now()
local at = clock(t)
local is_retest = redis.call('HEXISTS', KEYS[1], 'retest_of') == 1
local counter = {keep = 'kept', discard = 'discarded', crash = 'crashed', timeout = 'crashed', stopped = 'stopped',
  lost = 'lost', invalid = 'invalid'}
put(KEYS[1], ARGV[12])
redis.call('HSET', KEYS[1], 'status', status, 'finished_at', at)
if not is_retest then redis.call('HINCRBY', KEYS[2], counter[status], 1) end
if ARGV[5] == 'lost' and not is_retest then redis.call('HINCRBY', KEYS[2], 'lost', -1) end
local judged = {keep = 1, discard = 1, crash = 1, timeout = 1}
if judged[status] and not is_retest then
  local nth = redis.call('HINCRBY', KEYS[2], 'total', 1)
  redis.call('HSET', KEYS[1], 'finish_number', nth)
  local n = redis.call('HMGET', KEYS[1], 'outdated', 'error_kind')
  local newest, before = id, nth
  if n[1] == 'true' or n[2] == 'infra' then newest, before = newest_of(KEYS[22], KEYS[5]) end
  redis.call('HSET', KEYS[22], 'newest', newest or '', 'newest_nth', before)
  redis.call('ZADD', KEYS[5], nth, id)
  redis.call('HINCRBY', KEYS[6], ARGV[4] .. ':total', 1)
  if status == 'keep' then redis.call('HINCRBY', KEYS[6], ARGV[4] .. ':kept', 1) end
end
-- What Nightjar trained is spent by Redis' clock, what an agent trained itself by its own report.
local reports = {keep = 1, discard = 1, crash = 1, timeout = 1, invalid = 1, measured = 1}
if e[2] == '0' then
  local ran = reports[status] or 0
  settle_books(KEYS[2], KEYS[17], ARGV[3], KEYS[1], ran * ms(ARGV[16] ~= '' and ARGV[16] or '0'), ran)
else
  local started = redis.call('HGET', KEYS[13], e[2] .. ':started_at')
  local ran = (started or tonumber(e[2]) > 1) and 1 or 0
  settle_books(KEYS[2], KEYS[17], ARGV[3], KEYS[1], lasted(started, at), ran)
end
if ARGV[16] ~= '' then redis.call('HINCRBYFLOAT', KEYS[2], 'training_seconds', ARGV[16]) end
if ARGV[15] ~= '' then
  put(KEYS[2], ARGV[15])
  redis.call('HINCRBY', KEYS[2], 'key_version', 1)
end
if ARGV[24] ~= '' then
  redis.call('HSET', KEYS[21], ARGV[24], ARGV[26])
  if ARGV[27] ~= '' then
    redis.call('HINCRBY', KEYS[21], 'df', 1)
    local squares = tonumber(redis.call('HGET', KEYS[21], 'squares') or '0') + tonumber(ARGV[27])
    redis.call('HSET', KEYS[21], 'squares', string.format('%.17g', squares))
  end
end
if ARGV[14] ~= '' then redis.call('ZADD', KEYS[4], ARGV[14], id) end
-- What an agent says of its own run (attempt 0) says nothing about the GPU that it borrowed.
local gpu = e[2] ~= '0' and KEYS[16] ~= KEYS[7] and redis.call('EXISTS', KEYS[16]) == 1
if ARGV[17] == 'count' then
  redis.call('HINCRBY', KEYS[7], 'consecutive', 1)
  redis.call('HINCRBY', KEYS[7], 'total', 1)
elseif ARGV[17] == 'reset' then
  if not is_retest then redis.call('HSET', KEYS[7], 'consecutive', 0) end
  if gpu then
    redis.call('HSET', KEYS[16], 'consecutive_crashes', 0)
    redis.call('HDEL', KEYS[16], 'tripped', 'tripped_until', 'trips')
  end
end
if gpu and (ARGV[17] == 'count' or ARGV[17] == 'worker') then
  local crashes = redis.call('HINCRBY', KEYS[16], 'consecutive_crashes', 1)
  if ARGV[21] ~= '' and crashes >= tonumber(ARGV[21]) and redis.call('HEXISTS', KEYS[16], 'tripped') == 0 then
    local pause = tonumber(ARGV[22]) * 2 ^ (redis.call('HINCRBY', KEYS[16], 'trips', 1) - 1)
    redis.call('HSET', KEYS[16], 'tripped', crashes .. ' runs in a row have crashed on it',
      'tripped_until', clock(t + math.min(pause, tonumber(ARGV[23]))))
  end
end
if gpu then settle(KEYS[16], KEYS[19], KEYS[17], redis.call('HGET', KEYS[16], 'gpu_id'), t, 'a run ended') end
move(KEYS[8], KEYS[9], KEYS[10], KEYS[11], ARGV[2], id)
redis.call('ZREM', KEYS[12], id)
local score = redis.call('ZSCORE', KEYS[14], id) or redis.call('ZSCORE', KEYS[20], id)
if score and tonumber(score) % 1e15 > 0 and not is_retest then
  -- It never had its turn (what waits again stands at place 0): its agent gets it back, unless that round is over.
  local agent = 'agent:' .. (redis.call('HGET', KEYS[1], 'agent') or '')
  local own = tonumber(redis.call('HGET', KEYS[18], agent) or '-1')
  local served = tonumber(redis.call('HGET', KEYS[18], 'round') or '0')
  if math.floor(tonumber(score) % 1e15 / 1e6) >= served then
    if own > served then
      redis.call('HSET', KEYS[18], agent, own - 1)
    else
      redis.call('HDEL', KEYS[18], agent)
    end
  end
end
redis.call('ZREM', KEYS[14], id)
redis.call('ZREM', KEYS[20], id)
redis.call('ZREM', KEYS[15], id)
if e[2] ~= '0' then
  redis.call('HSET', KEYS[13], e[2] .. ':status', status, e[2] .. ':ended_at', at)
end
emit(KEYS[17], is_retest and 'experiment.retested' or status == 'lost' and 'experiment.lost' or 'experiment.finished',
  ARGV[3], id, ARGV[18], ARGV[19])
if ARGV[28] ~= '' then
  local before = redis.call('HGET', KEYS[23], 'status')
  put(KEYS[23], ARGV[28])
  redis.call('HINCRBY', KEYS[23], 'version', 1)
  if before == 'pending' and ARGV[31] == 'live' then
    redis.call('HSET', KEYS[23], 'status', 'live')
    local trace = redis.call('HGET', KEYS[23], 'trace_id')
    emit(KEYS[17], 'trace.opened', ARGV[3], trace, cjson.encode({trace_id = trace, root = id}), ARGV[19])
  elseif ARGV[31] == 'dead' and before ~= 'dead' then
    end_trace(KEYS[23], KEYS[26], KEYS[17], ARGV[3], 'dead', ARGV[32], t)
  end
  for i = 28, #KEYS do
    redis.call('HSET', KEYS[i], 'merged_into', redis.call('HGET', KEYS[23], 'trace_id'))
    end_trace(KEYS[i], KEYS[26], KEYS[17], ARGV[3], 'merged', 'it was merged by ' .. id, t)
  end
end
if ARGV[33] ~= '' then
  close_selection(KEYS[24], KEYS[25], KEYS[23], KEYS[26], KEYS[27], KEYS[17], ARGV[3], ARGV[33], status, t)
end
if ARGV[13] ~= '' then
  put(KEYS[3], ARGV[13])
  redis.call('HINCRBY', KEYS[3], 'version', 1)
end
if ARGV[20] ~= '' then
  redis.call('HSET', KEYS[3], 'updated_at', at)
  emit(KEYS[17], 'best.changed', ARGV[3], id, ARGV[20], ARGV[19])
end
return 'ok'
