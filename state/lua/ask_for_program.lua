-- Note that the next version of a tag's program is wanted of a language model, once for each attempt.
-- parts: events
-- keys: programs program_ask program_asks
-- args: tag number attempt reason asked
-- `asked` is the data of the event.
-- Returns ok | stale
if redis.call('LLEN', K.programs) ~= tonumber(A.number) - 1 then return 'stale' end
local before = redis.call('HMGET', K.program_ask, 'number', 'attempt')
local attempts = before[1] == A.number and tonumber(before[2]) or 0
if attempts ~= tonumber(A.attempt) - 1 then return 'stale' end
local at = now()
redis.call('HSET', K.program_ask, 'number', A.number, 'attempt', A.attempt, 'reason', A.reason, 'at', clock(at))
redis.call('ZADD', K.program_asks, clock(at), A.tag)
emit('program.asked', A.tag, A.tag, A.asked)
return 'ok'
