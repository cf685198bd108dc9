-- A tag's dimensions: replaced as a whole, if they still are those that the decision was made on.
-- keys: dimensions
-- args: version values

local function dimensions_are_stale()
  return (redis.call('HGET', K.dimensions, 'version') or '0') ~= A.version
end

local function replace_dimensions()
  redis.call('HSET', K.dimensions, 'values', A.values)
  return redis.call('HINCRBY', K.dimensions, 'version', 1)
end
