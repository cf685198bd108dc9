-- Keep the newest lines of a run's log. A run's first log counts for its upper limit, on the owner's quota. Later ones are
-- free, so that no worker fills the quota of another.
-- keys: log
-- args: text most
-- returns: ok
if redis.call('EXISTS', K.log) == 0 then count_stored(tonumber(A.most)) end
redis.call('SET', K.log, A.text)
return 'ok'
