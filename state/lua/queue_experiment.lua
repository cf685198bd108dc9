-- Put a registered experiment into the wait queue, its run set aside from the tag's budget; where it already holds a
-- live lease, straight onto that GPU; where its tag is paused, where the tag's experiments are parked, and the GPU goes
-- back: it would stand idle for as long as the pause.
-- KEYS  1 experiment  2 status registered  3 same of its category  4 status queued  5 same of its category
--       6 status leased  7 same of its category  8 queue it waits in  9 queue clock  10 attempts  11 open  12 starting
--       13 GPU of the lease it holds (the experiment itself where it holds none)  14 events  15 tag  16 where it is parked
--       17 idle GPUs  18 leases
-- ARGV  1 id  2 number  3 tag  4 agent  5 priority  6 fields as JSON  7 trace  8 the GPU it held last, or empty
--       9 seconds that the run may take
-- Returns {queued | leased | stale} | {exhausted, gpu_seconds or runs, limit, spent, reserved, needed}
local e = redis.call('HMGET', KEYS[1], 'status', 'gpu_id', 'reserved_gpu_seconds')
if e[1] ~= 'registered' or (e[2] or '') ~= ARGV[8] then return {'stale'} end
local short = shortage(KEYS[15], ms(ARGV[9]) - ms(e[3] or '0'), e[3] and 0 or 1)
if short then return short end
local paused = redis.call('HEXISTS', KEYS[15], 'paused_at') == 1
local at = now()
local t = clock(at)
local fence = redis.call('HGET', KEYS[13], 'fence')
local holds = redis.call('HGET', KEYS[13], 'holder') == ARGV[1]
  and fence == redis.call('HGET', KEYS[1], 'fence')
local attempt = redis.call('HINCRBY', KEYS[1], 'attempt', 1)
reserve(KEYS[15], KEYS[14], ARGV[3], KEYS[1], ms(ARGV[9]))
put(KEYS[1], ARGV[6])
redis.call('HSET', KEYS[1], 'queued_at', t)
redis.call('ZREM', KEYS[11], ARGV[1])
redis.call('HSET', KEYS[10], attempt .. ':status', 'queued', attempt .. ':queued_at', t)
local data = cjson.encode({experiment_id = ARGV[1], attempt = attempt})
emit(KEYS[14], 'experiment.queued', ARGV[3], ARGV[1], data, ARGV[7])
if holds and not paused then
  local gpu = redis.call('HGET', KEYS[13], 'gpu_id')
  redis.call('HSET', KEYS[1], 'status', 'leased', 'gpu_id', gpu)
  redis.call('HSET', KEYS[13], 'attempt', attempt)
  redis.call('HSET', KEYS[10], attempt .. ':status', 'leased', attempt .. ':gpu_id', gpu, attempt .. ':fence', fence)
  move(KEYS[2], KEYS[3], KEYS[6], KEYS[7], ARGV[2], ARGV[1])
  redis.call('ZADD', KEYS[12], 0, ARGV[1])
  emit(KEYS[14], 'experiment.leased', ARGV[3], ARGV[1],
    cjson.encode({experiment_id = ARGV[1], attempt = attempt, gpu_id = gpu, fence = tonumber(fence)}), ARGV[7])
  return {'leased'}
end
if holds then
  local gpu = redis.call('HGET', KEYS[13], 'gpu_id')
  redis.call('HDEL', KEYS[13], 'holder', 'leased_at', 'lease_expires_at')
  redis.call('ZREM', KEYS[18], gpu)
  redis.call('HDEL', KEYS[1], 'gpu_id')
  redis.call('HSET', KEYS[1], 'fence', 0)
  settle(KEYS[13], KEYS[17], KEYS[14], gpu, at, 'its holder waits: the tag is paused')
end
redis.call('HSET', KEYS[1], 'status', 'queued')
move(KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[2], ARGV[1])
-- Fair shares between agents (start-time fair queueing): an agent's next round is the one after its last, and
-- never one that is already over.
local served = tonumber(redis.call('HGET', KEYS[9], 'round') or '0')
local own = tonumber(redis.call('HGET', KEYS[9], 'agent:' .. ARGV[4]) or '-1')
local round = math.max(own + 1, served)
if redis.call('HEXISTS', KEYS[1], 'retest_of') == 1 then
  round = served  -- it is nobody's idea: it takes no agent's turn, and moves the rounds of none
else
  redis.call('HSET', KEYS[9], 'agent:' .. ARGV[4], round)
end
local seq = redis.call('HINCRBY', KEYS[9], 'seq', 1)
redis.call('ZADD', KEYS[paused and 16 or 8], place(tonumber(ARGV[5]), round, seq), ARGV[1])
return {'queued'}
