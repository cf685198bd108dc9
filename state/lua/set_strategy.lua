-- Replace a tag's strategy, if it still is the one that the decision was made on.
-- parts: events
-- keys: strategy
-- args: tag version fields* changed?
-- `changed`: data of an event, where the mode is another one.
-- Returns when it was replaced | stale
if redis.call('HGET', K.strategy, 'version') ~= A.version then return 'stale' end
local at = clock(now())
redis.call('HSET', K.strategy, 'updated_at', at, unpack(A.fields))
redis.call('HINCRBY', K.strategy, 'version', 1)
if A.changed then emit('strategy.changed', A.tag, A.tag, A.changed) end
return at
