-- A GPU that was taken out for its crashes may try one run, once its cool-down is over.
-- KEYS  1 GPU  2 idle GPUs  3 events
-- ARGV  1 gpu
-- Returns ok | stale
--   The count of its crashes stays: one more takes it out again, a success closes the breaker.
local g = redis.call('HMGET', KEYS[1], 'tripped', 'tripped_until')
local t = now()
if not g[1] or t < tonumber(g[2] or '0') then return 'stale' end
redis.call('HDEL', KEYS[1], 'tripped', 'tripped_until')
settle(KEYS[1], KEYS[2], KEYS[3], ARGV[1], t, 'may try one run after its crashes')
return 'ok'
