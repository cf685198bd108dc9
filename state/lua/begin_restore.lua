-- Mark an empty or half restored lab as half restored: no process opens it from now on.
-- keys: restoring layout schema identity tags processes
-- args: token silent_s file
-- returns: begun | again (an earlier restore left keys, which have to go first) | busy | taken
local t = now()
local before = redis.call('HGET', K.restoring, 'until')
if before and tonumber(before) > t then return 'busy' end
if not before and redis.call('EXISTS', K.layout, K.schema, K.identity, K.tags, K.processes) > 0 then return 'taken' end
redis.call('HSET', K.restoring, 'token', A.token, 'until', clock(t + tonumber(A.silent_s)), 'file', A.file)
return before and 'again' or 'begun'
