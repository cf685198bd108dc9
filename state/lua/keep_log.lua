-- Keep the newest lines of a run's log. The first of them count for all that a log may hold, against its owner's quota:
-- no worker fills that by writing another's log again and again.
-- keys: log
-- args: text most
-- returns: ok
if redis.call('EXISTS', K.log) == 0 then count_stored(tonumber(A.most)) end
redis.call('SET', K.log, A.text)
return 'ok'
