-- End an experiment: counters, indexes, best, near misses, crash counts, noise, trace, stored answer and event.
-- parts: experiment
-- args: status event event_data
-- returns: ok | stale
if is_stale() then return 'stale' end
end_experiment(now())
return 'ok'
