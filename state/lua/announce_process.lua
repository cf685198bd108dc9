-- A process says that it is alive; those silent for an hour are forgotten. Presence: no decision relies on it.
-- keys: processes process_facts
-- args: name facts
-- returns: ok
local t = now()
redis.call('ZADD', K.processes, clock(t), A.name)
redis.call('HSET', K.process_facts, A.name, A.facts)
for _, old in ipairs(redis.call('ZRANGEBYSCORE', K.processes, '-inf', clock(t - 3600))) do
  redis.call('ZREM', K.processes, old)
  redis.call('HDEL', K.process_facts, old)
end
return 'ok'
