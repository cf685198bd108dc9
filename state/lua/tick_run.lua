-- Keep what a swarm's worker reports of its run: a sign of life. At a bucket the run is ranked and told something there.
-- parts: ticks rank
-- keys: handed_out swarm_seen
-- args: worker_id metric progress silent_s
-- A worker that is silent for `silent_s` seconds has lost its run.
-- returns: continue | stop | extend | stale
if redis.call('HGET', K.experiment, 'status') ~= 'running' then return 'stale' end
local t = now()
local last = redis.call('HGET', K.experiment, 'last_progress')
if not last or tonumber(A.progress) >= tonumber(last) then keep_tick(t)
elseif A.is_base then keep_base() end -- a later report has overtaken it
redis.call('ZADD', K.handed_out, 'XX', 'GT', clock(t + tonumber(A.silent_s)), A.id)
redis.call('ZADD', K.swarm_seen, clock(t), A.worker_id)
if not A.bucket then return 'continue' end
local told, is_new = rank()
if is_new and told == 'extend' then redis.call('ZINCRBY', K.handed_out, A.extra_s, A.id) end
return told
