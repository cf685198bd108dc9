-- Change the configs that wait for the workers of populations.
-- keys: proposals* dimensions
-- args: tag version dropped* dropped_from* texts* scores* added_to*
-- `version` is that of the dimensions that this was decided on; `dropped_from` and `added_to` are places among `proposals`.
-- Returns how many wait then | stale
if (redis.call('HGET', K.dimensions, 'version') or '0') ~= A.version then return 'stale' end
for i, text in ipairs(A.dropped) do redis.call('ZREM', K.proposals[tonumber(A.dropped_from[i])], text) end
for i, text in ipairs(A.texts) do redis.call('ZADD', K.proposals[tonumber(A.added_to[i])], A.scores[i], text) end
local waiting = 0
for _, proposals in ipairs(K.proposals) do waiting = waiting + redis.call('ZCARD', proposals) end
return tostring(waiting)
