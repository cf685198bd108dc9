-- Somebody asked after an open experiment: its agent is alive. Presence, not state.
-- KEYS  1 open
-- ARGV  1 id  2 patience in seconds
return redis.call('ZADD', KEYS[1], 'XX', clock(now() + tonumber(ARGV[2])), ARGV[1])
