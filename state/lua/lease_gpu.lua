-- Lend the first of the candidates that is still idle, healthy and fresh to an experiment, with a new fence.
-- KEYS  1 experiment  2 attempts  3 status queued  4 same of its category  5 status leased  6 same of its category
--       7 queue  8 queue clock  9 starting  10 leases  11 idle GPUs  12 fence counter  13 events
--       14 the GPU it holds already (the experiment itself where it holds none)  15... candidates, best first
-- ARGV  1 id  2 number  3 tag  4 expected status (queued, or registered for an agent's own lease)  5 expected attempt
--       6 lease in seconds  7 seconds without heartbeat that make a GPU stale  8 trace  9 the GPU it held last, or empty
-- Returns {leased | held, gpu, index, fence, expiry} | {none} | {stale, status found}
local id = ARGV[1]
local found = redis.call('HGET', KEYS[1], 'status')
if redis.call('HGET', KEYS[14], 'holder') == id
  and redis.call('HGET', KEYS[14], 'fence') == redis.call('HGET', KEYS[1], 'fence') then
  local held = redis.call('HMGET', KEYS[14], 'gpu_id', 'gpu_index', 'fence', 'lease_expires_at')
  return {'held', held[1], held[2], held[3], held[4]}
end
if found ~= ARGV[4] or redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[5]
  or (redis.call('HGET', KEYS[1], 'gpu_id') or '') ~= ARGV[9] then
  return {'stale', found or ''}
end
local t = now()
for i = 15, #KEYS do
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
    local data = cjson.encode({experiment_id = id, attempt = tonumber(ARGV[5]), gpu_id = gpu[3], fence = fence})
    if found == 'queued' then
      local score = redis.call('ZSCORE', KEYS[7], id)
      if score then
        local round = math.floor(tonumber(score) % 1e15 / 1e6)
        if round > tonumber(redis.call('HGET', KEYS[8], 'round') or '0') then
          redis.call('HSET', KEYS[8], 'round', round)
        end
        redis.call('ZREM', KEYS[7], id)
      end
      redis.call('HSET', KEYS[1], 'status', 'leased')
      redis.call('HSET', KEYS[2], ARGV[5] .. ':status', 'leased', ARGV[5] .. ':gpu_id', gpu[3], ARGV[5] .. ':fence',
        fence)
      move(KEYS[3], KEYS[4], KEYS[5], KEYS[6], ARGV[2], id)
      redis.call('ZADD', KEYS[9], clock(t), id)
      emit(KEYS[13], 'experiment.leased', ARGV[3], id, data, ARGV[8])
    end
    emit(KEYS[13], 'gpu.leased', ARGV[3], gpu[3], data, ARGV[8])
    return {'leased', gpu[3], gpu[4], tostring(fence), expiry}
  end
end
return {'none'}
