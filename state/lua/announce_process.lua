-- A process says it is there; those silent for an hour are forgotten. Presence, not state.
-- KEYS  1 last seen  2 what they are
-- ARGV  1 process  2 description as JSON
local t = now()
redis.call('ZADD', KEYS[1], clock(t), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', clock(t - 3600))) do
  redis.call('ZREM', KEYS[1], old)
  redis.call('HDEL', KEYS[2], old)
end
return 'ok'
