-- Give a token a new secret; one of those before holds for a while.
-- KEYS  1 token  2 events
-- ARGV  1 digest of the present secret  2 of the new one  3 seconds for which one of those before holds  4 event data
--       5 digest of that one
-- Returns ok | stale
local t = now()
local f = redis.call('HMGET', KEYS[1], 'digest', 'revoked_at', 'expires_at', 'name')
if f[1] ~= ARGV[1] or f[2] or f[3] and t >= tonumber(f[3]) then return 'stale' end
redis.call('HSET', KEYS[1], 'digest', ARGV[2], 'old_digest', ARGV[5], 'old_until', clock(t + tonumber(ARGV[3])), 'rotated_at',
  clock(t))
emit(KEYS[2], 'token.rotated', '', f[4], ARGV[4])
return 'ok'
