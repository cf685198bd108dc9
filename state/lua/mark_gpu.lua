-- Move a GPU that nobody holds, or whose lease goes on, from one status to another.
-- KEYS  1 GPU  2 idle GPUs  3 events
-- ARGV  1 gpu  2 expected status  3 expected holder, or empty for none  4 new status, or empty to keep it
--       5 fields as JSON  6 fields to delete, separated by commas  7 reason
-- Returns ok | stale
local g = redis.call('HMGET', KEYS[1], 'status', 'holder')
if g[1] ~= ARGV[2] or (g[2] or '') ~= ARGV[3] then return 'stale' end
local t = clock(now())
put(KEYS[1], ARGV[5])
for field in string.gmatch(ARGV[6], '[^,]+') do redis.call('HDEL', KEYS[1], field) end
if ARGV[4] == '' or ARGV[4] == g[1] then return 'ok' end
redis.call('HSET', KEYS[1], 'status', ARGV[4])
if ARGV[4] == 'idle' then
  redis.call('HSET', KEYS[1], 'idle_since', t)
  redis.call('ZADD', KEYS[2], t, ARGV[1])
else
  redis.call('HDEL', KEYS[1], 'idle_since')
  redis.call('ZREM', KEYS[2], ARGV[1])
end
if ARGV[4] ~= 'training' then
  emit(KEYS[3], 'gpu.' .. ARGV[4], '', ARGV[1], cjson.encode({gpu_id = ARGV[1], reason = ARGV[7]}))
end
return 'ok'
