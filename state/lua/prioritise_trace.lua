-- Set how much traces are wanted, for the scheduler that goes by it.
-- keys: traces*
-- args: priorities*
for i, trace in ipairs(K.traces) do redis.call('HSET', trace, 'priority', A.priorities[i]) end
