-- Issue a token, or make one of an enroll token for one of its uses. The name is its bearer's: an operator may give a
-- name again once its token was revoked, an enroll token never.
-- parts: events names
-- keys: tokens token enroll_token?
-- args: id name role kind fields lasts_s? event_data
-- returns: ok | taken | first | ended
local t = now()
if K.enroll_token then
  local e = redis.call('HMGET', K.enroll_token, 'kind', 'revoked_at', 'expires_at', 'uses_left')
  local over = e[3] and t >= tonumber(e[3]) or e[4] and tonumber(e[4]) < 1
  if e[1] ~= 'enroll' or e[2] or over then return 'ended' end
elseif redis.call('EXISTS', K.tokens) == 0 and not (A.role == 'operator' and A.kind == 'access') then
  return 'first'
end
local folded = fold_names(A.name)
local before = redis.call('HGET', K.token_names, folded)
if before and (K.enroll_token or string.sub(before, 1, 1) ~= '-') then return 'taken' end
if K.enroll_token and redis.call('HEXISTS', K.enroll_token, 'uses_left') == 1 then
  redis.call('HINCRBY', K.enroll_token, 'uses_left', -1)
end
put(K.token, A.fields)
redis.call('HSET', K.token, 'created_at', clock(t))
if A.lasts_s then redis.call('HSET', K.token, 'expires_at', clock(t + tonumber(A.lasts_s))) end
redis.call('ZADD', K.tokens, clock(t), A.id)
redis.call('HSET', K.token_names, folded, A.id)
emit('token.issued', '', A.name, A.event_data)
return 'ok'
