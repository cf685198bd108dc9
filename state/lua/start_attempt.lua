-- A worker begins an attempt; a second worker, or one with an old fence, is refused.
-- KEYS  1 experiment  2 GPU  3 attempts  4 starting  5 leases  6 status leased  7 same of its category
--       8 status running  9 same of its category  10 events
-- ARGV  1 id  2 number  3 tag  4 attempt  5 fence  6 runner  7 lease in seconds  8 trace
--       9 the GPU's memory before it as JSON, or empty
-- Returns ok | refused
local e = redis.call('HMGET', KEYS[1], 'status', 'attempt', 'fence')
local g = redis.call('HMGET', KEYS[2], 'holder', 'fence', 'gpu_id')
if e[1] ~= 'leased' or e[2] ~= ARGV[4] or e[3] ~= ARGV[5] or g[1] ~= ARGV[1] or g[2] ~= ARGV[5] then
  return 'refused'
end
local t = now()
local expiry = clock(t + tonumber(ARGV[7]))
redis.call('HSET', KEYS[1], 'status', 'running', 'started_at', clock(t))
redis.call('HSET', KEYS[2], 'runner', ARGV[6], 'lease_expires_at', expiry)
if ARGV[9] == '' then
  redis.call('HDEL', KEYS[2], 'footprint')
else
  redis.call('HSET', KEYS[2], 'footprint', ARGV[9])
end
redis.call('ZADD', KEYS[5], expiry, g[3])
redis.call('HSET', KEYS[3], ARGV[4] .. ':status', 'running', ARGV[4] .. ':started_at', clock(t), ARGV[4] .. ':runner',
  ARGV[6])
redis.call('ZREM', KEYS[4], ARGV[1])
move(KEYS[6], KEYS[7], KEYS[8], KEYS[9], ARGV[2], ARGV[1])
emit(KEYS[10], 'experiment.started', ARGV[3], ARGV[1],
  cjson.encode({experiment_id = ARGV[1], attempt = tonumber(ARGV[4]), gpu_id = g[3], fence = tonumber(ARGV[5])}),
  ARGV[8])
return 'ok'
