-- The agent of a registered experiment was heard of.
-- keys: open
-- args: id patience_s
redis.call('ZADD', K.open, 'XX', clock(now() + tonumber(A.patience_s)), A.id)
return 'ok'
