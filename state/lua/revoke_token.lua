-- End a token for good; an operator may give its name again.
-- parts: events names
-- keys: token
-- args: id name event_data
-- returns: ok | before
if redis.call('HEXISTS', K.token, 'revoked_at') == 1 then return 'before' end
redis.call('HSET', K.token, 'revoked_at', clock(now()))
redis.call('HDEL', K.token, 'old_digest', 'old_until')
local folded = fold_names(A.name)
if redis.call('HGET', K.token_names, folded) == A.id then redis.call('HSET', K.token_names, folded, '-' .. A.id) end
emit('token.revoked', '', A.name, A.event_data)
return 'ok'
