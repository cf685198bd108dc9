-- A schedule as it stands at one moment.
-- parts: ticks
-- returns: {Redis' time, ticks being handled, ticks that no handler has read, field, value, ...}
local handled, unread = unhandled(1000)
local found = {clock(now()), handled, unread}
for _, word in ipairs(redis.call('HGETALL', K.schedule)) do found[#found + 1] = word end
return found
