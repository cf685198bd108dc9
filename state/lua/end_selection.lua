-- Give a selection back that nothing was registered with: released by its holder, or expired by Redis' clock.
-- KEYS  1 selection  2 open selections  3 its trace  4 live traces  5 traces  6 events
-- ARGV  1 selection  2 tag  3 released | expired  4 why
-- Returns ok | over | registered | early, its lease goes on
local s = redis.call('HMGET', KEYS[1], 'status', 'experiment_id')
if s[1] ~= 'open' then
  redis.call('ZREM', KEYS[2], ARGV[1])
  return 'over'
end
if s[2] then
  redis.call('ZADD', KEYS[2], '+inf', ARGV[1])
  return 'registered'
end
local t = now()
if ARGV[3] == 'expired' and tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1])) > t then return 'early' end
close_selection(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], ARGV[2], ARGV[3], ARGV[4], t)
return 'ok'
