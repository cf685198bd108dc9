-- Note a wrong try to sign in, unless its address had too many within the minute.
-- KEYS  1 tries of the address within this minute
-- ARGV  1 how many are allowed  2 the minute in seconds
-- Returns seconds to wait; 0 where it may be tried
if tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[1]) then
  return string.format('%.3f', math.max(redis.call('PEXPIRETIME', KEYS[1]) / 1000 - now(), 0.001))
end
if redis.call('INCR', KEYS[1]) == 1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return '0'
