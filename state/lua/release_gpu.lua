-- The holder gives its GPU back; not while a worker has the experiment on it.
-- KEYS  1 GPU  2 experiment  3 idle GPUs  4 leases  5 events
-- ARGV  1 gpu  2 experiment  3 fence, or empty for any  4 1 where the GPU is proven empty
-- Returns ok | free | other | busy
local g = redis.call('HMGET', KEYS[1], 'holder', 'fence', 'runner')
if not g[1] then return 'free' end
if g[1] ~= ARGV[2] or (ARGV[3] ~= '' and g[2] ~= ARGV[3]) then return 'other' end
local e = redis.call('HMGET', KEYS[2], 'status', 'fence')
if (e[1] == 'leased' or e[1] == 'running') and e[2] == g[2] then return 'busy' end
redis.call('HDEL', KEYS[1], 'holder', 'leased_at', 'lease_expires_at', 'runner')
redis.call('ZREM', KEYS[4], ARGV[1])
if ARGV[4] == '1' then
  redis.call('HDEL', KEYS[1], 'footprint')
elseif g[3] then
  redis.call('HSET', KEYS[1], 'unproven', 'true')  -- a worker's run: its keeper has to look
end
settle(KEYS[1], KEYS[3], KEYS[5], ARGV[1], now(), 'released')
return 'ok'
