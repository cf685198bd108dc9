-- Give a token a new secret; one of those before, with the digest `stays`, holds for `overlap_s` seconds more.
-- `digest` is that of the present secret. `bearer` is the token's id where its bearer asks, with the secret that stays.
-- parts: events
-- keys: token token_use
-- args: digest new_digest stays overlap_s bearer? event_data
-- returns: ok | stale | rotated_out: the bearer asks with an old secret, and the present one was used already
local t = now()
local f = redis.call('HMGET', K.token, 'digest', 'revoked_at', 'expires_at', 'name', 'old_digest', 'old_until')
if f[1] ~= A.digest or f[2] or f[3] and t >= tonumber(f[3]) then return 'stale' end
if A.bearer and A.stays ~= f[1] then
  if redis.call('HGET', K.token_use, A.bearer .. ':digest') == f[1] then return 'rotated_out' end
  if A.stays ~= f[5] or t >= tonumber(f[6] or '0') then return 'stale' end
end
redis.call('HSET', K.token, 'digest', A.new_digest, 'old_digest', A.stays,
  'old_until', clock(t + tonumber(A.overlap_s)), 'rotated_at', clock(t))
emit('token.rotated', '', f[4], A.event_data)
return 'ok'
