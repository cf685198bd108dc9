-- Keep the charter that every program of the lab is written into; its earlier texts stay, by digest.
-- parts: events
-- keys: program_base program_bases
-- args: text digest data
-- Returns ok | same
if redis.call('HGET', K.program_base, 'digest') == A.digest then return 'same' end
redis.call('HSET', K.program_base, 'text', A.text, 'digest', A.digest)
redis.call('HSET', K.program_bases, A.digest, A.text)
emit('program.rebased', '', A.digest, A.data)
return 'ok'
