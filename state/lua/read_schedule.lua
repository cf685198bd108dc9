-- A schedule as it stands, in one look.
-- KEYS  1 schedule  2 its ticks
-- ARGV  1 function
-- Returns {Redis' time, ticks being handled, ticks that nobody has read, field, value, ...}
local handled, unread = unhandled(KEYS[2], ARGV[1], 1000)
local found = {clock(now()), handled, unread}
for _, word in ipairs(redis.call('HGETALL', KEYS[1])) do found[#found + 1] = word end
return found
