-- Lend the first of the candidates that is still idle, healthy and fresh to an experiment, with a new fence.
-- KEYS  1 experiment  2 attempts  3 status queued  4 same of its category  5 status leased  6 same of its category
--       7 queue it waits in  8 queue clock  9 starting  10 leases  11 idle GPUs  12 fence counter  13 events
--       14 the GPU it holds already (the experiment itself where it holds none)  15 tag  16 paused tags
--       17... candidates, best first
-- ARGV  1 id  2 number  3 tag  4 expected status (queued, or registered for an agent's own lease)  5 expected attempt
--       6 lease in seconds  7 seconds without heartbeat that make a GPU stale  8 trace  9 the GPU it held last, or empty
--       10 idle GPUs that the candidates were chosen from, joined by commas, or - where that does not matter
-- Returns {leased | held, gpu, index, fence, expiry} | {none} | {paused} | {stale, status found}
--   A queued experiment that holds a GPU itself (its agent acquired it) is leased that one.
local id = ARGV[1]
local t = now()

-- The attempt leaves its queue. Agents whose last round is over are forgotten; all are, once the common queue is empty
-- and no tag is paused, whose experiments keep their places.
local function leave_queue()
  local score = redis.call('ZSCORE', KEYS[7], id)
  if not score then return end
  redis.call('ZREM', KEYS[7], id)
  redis.call('HDEL', KEYS[1], 'queue_round')
  local round = math.floor(tonumber(score) % 1e15 / 1e6)
  local is_over = redis.call('ZCARD', KEYS[7]) == 0 and not redis.call('HGET', KEYS[1], 'pinned_gpu')
    and redis.call('EXISTS', KEYS[16]) == 0
  if round > tonumber(redis.call('HGET', KEYS[8], 'round') or '0') then
    redis.call('HSET', KEYS[8], 'round', round)
  elseif not is_over then
    return
  end
  local clocks = redis.call('HGETALL', KEYS[8])
  for i = 1, #clocks, 2 do
    if string.sub(clocks[i], 1, 6) == 'agent:' and (is_over or tonumber(clocks[i + 1]) < round) then
      redis.call('HDEL', KEYS[8], clocks[i])
    end
  end
end

local function begin_attempt(gpu, fence, data)
  leave_queue()
  redis.call('HSET', KEYS[1], 'status', 'leased')
  redis.call('HSET', KEYS[2], ARGV[5] .. ':status', 'leased', ARGV[5] .. ':gpu_id', gpu, ARGV[5] .. ':fence', fence)
  move(KEYS[3], KEYS[4], KEYS[5], KEYS[6], ARGV[2], id)
  redis.call('ZADD', KEYS[9], clock(t), id)
  emit(KEYS[13], 'experiment.leased', ARGV[3], id, data, ARGV[8])
end

local function about(gpu, fence)
  return cjson.encode({experiment_id = id, attempt = tonumber(ARGV[5]), gpu_id = gpu, fence = tonumber(fence)})
end

local e = redis.call('HMGET', KEYS[1], 'status', 'attempt', 'gpu_id', 'fence')
local own = redis.call('HMGET', KEYS[14], 'holder', 'fence', 'gpu_id', 'gpu_index', 'lease_expires_at')
local holds = own[1] == id and own[2] == e[4]
if holds and e[1] ~= 'queued' then return {'held', own[3], own[4], own[2], own[5]} end
if e[1] ~= ARGV[4] or e[2] ~= ARGV[5] or (e[3] or '') ~= ARGV[9] then return {'stale', e[1] or ''} end
if redis.call('HEXISTS', KEYS[15], 'paused_at') == 1 then return {'paused'} end
if holds then
  redis.call('HSET', KEYS[14], 'attempt', ARGV[5])
  begin_attempt(own[3], own[2], about(own[3], own[2]))
  return {'leased', own[3], own[4], own[2], own[5]}
end
for i = 17, #KEYS do
  local gpu = redis.call('HMGET', KEYS[i], 'status', 'heartbeat_at', 'gpu_id', 'gpu_index')
  if gpu[1] == 'idle' and t - tonumber(gpu[2]) < tonumber(ARGV[7]) then
    local fence = redis.call('INCR', KEYS[12])
    local expiry = clock(t + tonumber(ARGV[6]))
    redis.call('HSET', KEYS[i], 'status', 'training', 'holder', id, 'attempt', ARGV[5], 'fence', fence,
      'leased_at', clock(t), 'lease_expires_at', expiry)
    redis.call('HDEL', KEYS[i], 'idle_since', 'runner')
    redis.call('ZREM', KEYS[11], gpu[3])
    redis.call('ZADD', KEYS[10], expiry, gpu[3])
    redis.call('HSET', KEYS[1], 'fence', fence, 'gpu_id', gpu[3])
    if e[1] == 'queued' then begin_attempt(gpu[3], fence, about(gpu[3], fence)) end
    emit(KEYS[13], 'gpu.leased', ARGV[3], gpu[3], about(gpu[3], fence), ARGV[8])
    return {'leased', gpu[3], gpu[4], tostring(fence), expiry}
  end
end
-- What was idle when the candidates were chosen, and what is idle now, may both hold one that fits: look again.
if ARGV[10] ~= '-' and table.concat(redis.call('ZRANGE', KEYS[11], 0, -1), ',') ~= ARGV[10] then
  return {'stale', e[1]}
end
return {'none'}
