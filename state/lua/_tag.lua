-- A new tag.
-- parts: events
-- keys: tag tags strategy policy decided
-- args: tag fields* strategy_fields* policy? branch? of_tag?

-- Create it with its strategy and its policy; answers when.
local function create_tag()
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
end
