-- A schedule as it stands at one moment.
-- parts: firings
-- returns: {Redis' time, firings being handled, firings that no handler has read, field, value, ...}
local handled, unread = unhandled(1000)
local found = {clock(now()), handled, unread}
for _, word in ipairs(redis.call('HGETALL', K.schedule)) do found[#found + 1] = word end
return found
