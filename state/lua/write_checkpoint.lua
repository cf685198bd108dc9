-- Append a checkpoint to a tag's journal, once for each number.
-- parts: events beliefs
-- keys: journal last_checkpoint
-- args: tag number text snapshot written
-- `snapshot` is what the next checkpoint is compared with, `written` the data of the event.
-- Returns ok | stale
if redis.call('LLEN', K.journal) ~= tonumber(A.number) - 1 or beliefs_are_stale() then return 'stale' end
redis.call('RPUSH', K.journal, A.text)
redis.call('SET', K.last_checkpoint, A.snapshot)
emit('journal.written', A.tag, A.tag, A.written)
return 'ok'
