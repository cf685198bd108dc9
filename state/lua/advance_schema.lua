-- A step of a migration is done: the lab has the next schema.
-- keys: schema migration
-- args: token before after last?
-- returns: ok | lost (another process has taken the migration over)
if redis.call('HGET', K.migration, 'token') ~= A.token or redis.call('GET', K.schema) ~= A.before then return 'lost' end
redis.call('SET', K.schema, A.after)
if A.last then redis.call('DEL', K.migration) end
return 'ok'
