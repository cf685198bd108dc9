-- Stop a run of a swarm for its rank: its worker is told to, and it ends as stopped in the same moment.
-- parts: ticks rank experiment
-- args: metric progress bucket class_id rank_class value told tick_data reason status event event_data
-- returns: ok | stale
if is_stale() then return 'stale' end
local t = now()
local told = cjson.decode(redis.call('HGET', K.experiment, 'told') or '{}')
if told[A.attempt .. ':' .. A.bucket] then return 'stale' end
keep_tick(t)
rank()
end_experiment(t)
return 'ok'
