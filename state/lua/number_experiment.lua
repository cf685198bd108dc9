-- The next number of a tag, unless its budget has no room for the run that is to follow.
-- KEYS  1 tag
-- ARGV  1 seconds of the run, or empty where none is to follow
-- Returns {ok, number} | {no_tag} | {exhausted, gpu_seconds or runs, limit, spent, reserved, needed}
if redis.call('EXISTS', KEYS[1]) == 0 then return {'no_tag'} end
local short = ARGV[1] ~= '' and shortage(KEYS[1], ms(ARGV[1]), 1)
return short or {'ok', redis.call('HINCRBY', KEYS[1], 'last_number', 1)}
