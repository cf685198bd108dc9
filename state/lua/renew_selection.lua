-- Prolong the lease of a selection that nothing was registered with yet.
-- KEYS  1 selection  2 open selections
-- ARGV  1 selection  2 seconds from now
-- Returns {ok, when it ends} | {held}, for as long as its experiment is open | {over}
local s = redis.call('HMGET', KEYS[1], 'status', 'experiment_id')
local t = now()
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
if s[1] ~= 'open' or not ends then return {'over'} end
if s[2] then return {'held'} end
if tonumber(ends) <= t then return {'over'} end
local expiry = clock(t + tonumber(ARGV[2]))
redis.call('ZADD', KEYS[2], expiry, ARGV[1])
redis.call('HSET', KEYS[1], 'lease_expires_at', expiry)
return {'ok', expiry}
