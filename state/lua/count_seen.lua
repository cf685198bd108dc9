-- How many members of an index by time were seen within the last seconds. Writes nothing.
-- A script: the seconds are those of Redis' clock.
-- keys: index
-- args: within_s
return redis.call('ZCOUNT', K.index, clock(now() - tonumber(A.within_s)), '+inf')
