-- Append a version of a tag's program, once for each number.
-- parts: events
-- keys: programs program_ask program_asks
-- args: tag number text written
-- `written` is the data of the event.
-- Returns ok | stale
if redis.call('LLEN', K.programs) ~= tonumber(A.number) - 1 then return 'stale' end
redis.call('RPUSH', K.programs, A.text)
redis.call('DEL', K.program_ask)
redis.call('ZREM', K.program_asks, A.tag)
emit('program.written', A.tag, A.tag, A.written)
return 'ok'
