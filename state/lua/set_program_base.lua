-- Keep the charter that every program of the lab is written into; its earlier texts stay, by digest.
-- parts: events
-- keys: program_base program_bases
-- args: text workers? digest host data
-- `host` is where the file lies: what it had when it was read last decides whether it has changed, so that hosts with
-- different files do not take turns.
-- Returns ok | same
local of_host = 'of:' .. A.host
if redis.call('HGET', K.program_base, of_host) == A.digest then return 'same' end
redis.call('HSET', K.program_base, of_host, A.digest)
if redis.call('HGET', K.program_base, 'digest') == A.digest then return 'same' end
redis.call('HSET', K.program_base, 'text', A.text, 'digest', A.digest)
redis.call('HSET', K.program_bases, A.digest, A.text)
redis.call('HDEL', K.program_base, 'workers')
if A.workers then
  redis.call('HSET', K.program_base, 'workers', A.workers)
  redis.call('HSET', K.program_bases, A.digest .. ':workers', A.workers)
end
emit('program.rebased', '', A.digest, A.data)
return 'ok'
