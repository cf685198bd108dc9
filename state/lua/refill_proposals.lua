-- Change the configs that wait for a population's workers.
-- keys: proposals dimensions
-- args: tag version dropped* texts* scores*
-- `version` is that of the dimensions that this was decided on.
-- Returns how many wait | stale
if (redis.call('HGET', K.dimensions, 'version') or '0') ~= A.version then return 'stale' end
for _, text in ipairs(A.dropped) do redis.call('ZREM', K.proposals, text) end
for i, text in ipairs(A.texts) do redis.call('ZADD', K.proposals, A.scores[i], text) end
return tostring(redis.call('ZCARD', K.proposals))
