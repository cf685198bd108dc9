-- Giving a token a new secret.
-- parts: events
-- keys: token_use

-- Give the token at `key` the secret with the digest `new_digest`; that with the digest `stays` holds for `overlap_s`
-- seconds more. `rotation` has these, `digest` (of the present secret), event_data (JSON), and `bearer`, the token's id,
-- where its bearer asks with the secret that stays. Returns nil, or why not: stale, or rotated_out (the bearer asks with
-- an old secret, and the present one was used already); then nothing was written.
local function rotate_token(t, key, rotation)
  local f = redis.call('HMGET', key, 'digest', 'revoked_at', 'expires_at', 'name', 'old_digest', 'old_until')
  if f[1] ~= rotation.digest or f[2] or f[3] and t >= tonumber(f[3]) then return 'stale' end
  if rotation.bearer and rotation.stays ~= f[1] then
    if redis.call('HGET', K.token_use, rotation.bearer .. ':digest') == f[1] then return 'rotated_out' end
    if rotation.stays ~= f[5] or t >= tonumber(f[6] or '0') then return 'stale' end
  end
  redis.call('HSET', key, 'digest', rotation.new_digest, 'old_digest', rotation.stays,
    'old_until', clock(t + tonumber(rotation.overlap_s)), 'rotated_at', clock(t))
  emit('token.rotated', '', f[4], rotation.event_data)
end
