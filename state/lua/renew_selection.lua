-- Prolong the lease of a selection that nothing was registered with yet.
-- keys: selection open_selections
-- args: tag id lease_s
-- returns: {ok, when it ends} | {held, the experiment that keeps it open} | {over}
local s = redis.call('HMGET', K.selection, 'status', 'experiment_id')
local t = now()
local ends = redis.call('ZSCORE', K.open_selections, A.id)
if s[1] ~= 'open' or not ends then return {'over'} end
if s[2] then return {'held', s[2]} end
if tonumber(ends) <= t then return {'over'} end
local expiry = clock(t + tonumber(A.lease_s))
redis.call('ZADD', K.open_selections, expiry, A.id)
redis.call('HSET', K.selection, 'lease_expires_at', expiry)
return {'ok', expiry}
