-- Note a wrong try to sign in, unless its address had too many within the time.
-- keys: tries
-- args: most within_s
-- returns: seconds to wait; 0 where it may be tried
if tonumber(redis.call('GET', K.tries) or '0') >= tonumber(A.most) then
  return string.format('%.3f', math.max(redis.call('PEXPIRETIME', K.tries) / 1000 - now(), 0.001))
end
if redis.call('INCR', K.tries) == 1 then redis.call('EXPIRE', K.tries, A.within_s) end
return '0'
