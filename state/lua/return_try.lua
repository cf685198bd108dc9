-- Take back the note of a try to sign in: it was a right one.
-- KEYS  1 tries of the address within this minute
-- Returns ok, or gone where the minute is over
if tonumber(redis.call('GET', KEYS[1]) or '0') < 1 then return 'gone' end
redis.call('INCRBY', KEYS[1], -1)
return 'ok'
