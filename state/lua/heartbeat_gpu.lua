-- A GPU is alive; with its fence the holder's lease is renewed too.
-- KEYS  1 GPU  2 idle GPUs  3 leases  4 events
-- ARGV  1 gpu  2 fence, or empty  3 least lease in seconds  4 health as JSON, or empty
-- Returns {unknown} | {ok, status, holder or empty, fence, 1 where the fence was right or not given}
local g = redis.call('HMGET', KEYS[1], 'status', 'holder', 'fence', 'lease_expires_at')
if not g[1] then return {'unknown'} end
local t = now()
redis.call('HSET', KEYS[1], 'heartbeat_at', clock(t))
redis.call('HDEL', KEYS[1], 'offline')
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'health', ARGV[4], 'sampled_at', clock(t)) end
local status = settle(KEYS[1], KEYS[2], KEYS[4], ARGV[1], t, 'heard of again')
local right = '1'
if ARGV[2] ~= '' then
  right = (g[2] and g[3] == ARGV[2]) and '1' or '0'
  if right == '1' then
    local expiry = math.max(t + tonumber(ARGV[3]), tonumber(g[4] or '0'))
    redis.call('HSET', KEYS[1], 'lease_expires_at', clock(expiry))
    redis.call('ZADD', KEYS[3], clock(expiry), ARGV[1])
  end
end
return {'ok', status, g[2] or '', g[3] or '0', right}
