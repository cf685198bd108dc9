-- Give a token a new secret; one of those before holds for a while.
-- KEYS  1 token  2 events  3 use of tokens
-- ARGV  1 digest of the present secret  2 of the new one  3 seconds for which one of those before holds  4 event data
--       5 digest of that one  6 token, where its bearer asks with that one, else empty
-- Returns ok | stale | rotated_out: the secret that it is asked with is an old one, and the present one has arrived
local t = now()
local f = redis.call('HMGET', KEYS[1], 'digest', 'revoked_at', 'expires_at', 'name', 'old_digest', 'old_until')
if f[1] ~= ARGV[1] or f[2] or f[3] and t >= tonumber(f[3]) then return 'stale' end
if ARGV[6] ~= '' and ARGV[5] ~= f[1] then
  if redis.call('HGET', KEYS[3], ARGV[6] .. ':digest') == f[1] then return 'rotated_out' end
  if ARGV[5] ~= f[5] or t >= tonumber(f[6] or '0') then return 'stale' end
end
redis.call('HSET', KEYS[1], 'digest', ARGV[2], 'old_digest', ARGV[5], 'old_until', clock(t + tonumber(ARGV[3])), 'rotated_at',
  clock(t))
emit(KEYS[2], 'token.rotated', '', f[4], ARGV[4])
return 'ok'
