-- Issuing a token. The first access token of an operator closes the lab: from then on every caller needs a token.
-- parts: events names
-- keys: tokens closed

-- Issue `token` at `key`, for a use of the enroll token at `enroll_key` if one is given. `token` has id, name, role, kind,
-- fields (JSON), event_data (JSON), perhaps lasts_s (seconds), and is_new where the name may never have been another's;
-- else the name of a revoked token may be given again. Returns nil, or why not: ended (the enroll token) or taken (the
-- name); then nothing was written.
local function issue_token(t, key, token, enroll_key)
  if enroll_key then
    local e = redis.call('HMGET', enroll_key, 'kind', 'revoked_at', 'expires_at', 'uses_left')
    local over = e[3] and t >= tonumber(e[3]) or e[4] and tonumber(e[4]) < 1
    if e[1] ~= 'enroll' or e[2] or over then return 'ended' end
  end
  local folded = fold_names(token.name)
  local before = redis.call('HGET', K.token_names, folded)
  if before and (token.is_new or string.sub(before, 1, 1) ~= '-') then return 'taken' end
  if enroll_key and redis.call('HEXISTS', enroll_key, 'uses_left') == 1 then
    redis.call('HINCRBY', enroll_key, 'uses_left', -1)
  end
  put(key, token.fields)
  redis.call('HSET', key, 'created_at', clock(t))
  if token.lasts_s then redis.call('HSET', key, 'expires_at', clock(t + tonumber(token.lasts_s))) end
  redis.call('ZADD', K.tokens, clock(t), token.id)
  redis.call('HSET', K.token_names, folded, token.id)
  if token.role == 'operator' and token.kind == 'access' then redis.call('SET', K.closed, clock(t), 'NX') end
  emit('token.issued', '', token.name, token.event_data)
end
