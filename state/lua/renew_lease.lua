-- Prolong a lease for its holder and answer the lab's order; with a tick, keep the tick.
-- KEYS  1 experiment  2 GPU  3 leases  4 ticks
-- ARGV  1 id  2 fence  3 lease in seconds  4 metric or empty  5 progress  6 how many ticks are kept
-- Returns continue | stop | lost
local e = redis.call('HMGET', KEYS[1], 'status', 'fence', 'stopping')
local g = redis.call('HMGET', KEYS[2], 'holder', 'fence', 'gpu_id')
if e[1] ~= 'running' or e[2] ~= ARGV[2] or g[1] ~= ARGV[1] or g[2] ~= ARGV[2] then return 'lost' end
local t = now()
local expiry = clock(t + tonumber(ARGV[3]))
redis.call('HSET', KEYS[2], 'lease_expires_at', expiry)
redis.call('ZADD', KEYS[3], expiry, g[3])
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'last_metric', ARGV[4], 'last_progress', ARGV[5])
  redis.call('RPUSH', KEYS[4], '[' .. ARGV[5] .. ',' .. ARGV[4] .. ',' .. clock(t) .. ']')
  redis.call('LTRIM', KEYS[4], -tonumber(ARGV[6]), -1)
end
return e[3] == 'true' and 'stop' or 'continue'
