-- The indexes of experiments: by status, and by status and category.
-- keys: status_before category_before status_after category_after
-- args: id number

local function relist()
  redis.call('ZREM', K.status_before, A.id)
  redis.call('ZREM', K.category_before, A.id)
  redis.call('ZADD', K.status_after, A.number, A.id)
  redis.call('ZADD', K.category_after, A.number, A.id)
end
