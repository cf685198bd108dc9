-- The values of some keys as DUMP writes them, with their expiry in milliseconds since 1970 (-1: none). Reads only.
-- KEYS  1... keys
-- Returns per key {payload or nothing, expiry}
local found = {}
for i = 1, #KEYS do
  found[i] = {redis.call('DUMP', KEYS[i]), redis.call('PEXPIRETIME', KEYS[i])}
end
return found
