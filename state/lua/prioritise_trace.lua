-- Set how much a trace is wanted, for the scheduler that goes by it.
-- KEYS  1 trace
-- ARGV  1 priority
-- Returns ok
redis.call('HSET', KEYS[1], 'priority', ARGV[1])
return 'ok'
