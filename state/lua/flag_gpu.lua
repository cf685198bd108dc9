-- Set or clear flags of a GPU; its status follows from them.
-- KEYS  1 GPU  2 idle GPUs  3 events
-- ARGV  1 gpu  2 fields to set as JSON  3 fields to clear, separated by commas  4 reason  5 expected fence, or empty
--       6 seconds without heartbeat that are expected, of a GPU not yet offline, or empty
-- Returns {ok, status} | {stale}
local g = redis.call('HMGET', KEYS[1], 'fence', 'heartbeat_at', 'offline')
if not g[1] then return {'stale'} end
local t = now()
if ARGV[5] ~= '' and g[1] ~= ARGV[5] then return {'stale'} end
if ARGV[6] ~= '' and (g[3] or t - tonumber(g[2]) < tonumber(ARGV[6])) then return {'stale'} end
put(KEYS[1], ARGV[2])
for field in string.gmatch(ARGV[3], '[^,]+') do redis.call('HDEL', KEYS[1], field) end
return {'ok', settle(KEYS[1], KEYS[2], KEYS[3], ARGV[1], t, ARGV[4])}
