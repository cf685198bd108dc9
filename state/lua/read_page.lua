-- The values of some keys as DUMP writes them, with their expiry in milliseconds since 1970 (-1: none). Reads only.
-- keys: page*
-- returns: per key {payload or nothing, expiry}
local found = {}
for i, key in ipairs(K.page) do found[i] = {redis.call('DUMP', key), redis.call('PEXPIRETIME', key)} end
return found
