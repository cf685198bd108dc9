-- A step of a migration closes a lab that has an operator's token, if it still is this process's turn.
-- keys: migration closed
-- args: token at
-- returns: ok | lost (another process has taken the migration over)
-- `at` is when the first one was issued.
if redis.call('HGET', K.migration, 'token') ~= A.token then return 'lost' end
redis.call('SET', K.closed, A.at, 'NX')
return 'ok'
