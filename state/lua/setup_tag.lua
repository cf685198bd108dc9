-- Create a tag with its strategy and its policy.
-- parts: events
-- keys: tag tags strategy policy decided
-- args: tag fields* strategy_fields* policy branch of_tag
-- Returns when it was created | exists
if redis.call('EXISTS', K.tag) == 1 then return 'exists' end
local at = clock(now())
redis.call('HSET', K.tag, unpack(A.fields))
redis.call('HSET', K.tag, 'created_at', at)
redis.call('ZADD', K.tags, at, A.tag)
redis.call('HSET', K.strategy, unpack(A.strategy_fields))
redis.call('HSET', K.strategy, 'updated_at', at)
redis.call('HSET', K.decided, 'tag', A.of_tag)
redis.call('HSET', K.policy, 'values', A.policy, 'version', 1)
emit('tag.created', A.tag, A.tag, cjson.encode({tag = A.tag, branch = A.branch}))
return at
