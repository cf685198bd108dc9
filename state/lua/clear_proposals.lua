-- Drop proposed dimensions of a tag.
-- keys: stalls proposed_dimensions
-- args: tag version dropped*
-- Returns ok | stale
if (redis.call('HGET', K.stalls, 'version') or '0') ~= A.version then return 'stale' end
redis.call('HINCRBY', K.stalls, 'version', 1)
if #A.dropped > 0 then redis.call('HDEL', K.proposed_dimensions, unpack(A.dropped)) end
return 'ok'
