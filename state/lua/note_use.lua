-- Note that a token was used, and its present secret, if the request came with that.
-- keys: token token_use
-- args: id digest
redis.call('HSET', K.token_use, A.id, clock(now()))
if redis.call('HGET', K.token, 'digest') == A.digest then redis.call('HSET', K.token_use, A.id .. ':digest', A.digest) end
