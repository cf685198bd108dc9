-- The values of the first of some keys as DUMP writes them, with their expiry in milliseconds since 1970 (-1: none).
-- A script: it ends by the bytes that it has read.
-- keys: page*
-- args: most_bytes
-- returns: per key {payload or nothing, expiry}; it ends early once the payloads have `most_bytes`. Reads only.
local found, bytes = {}, 0
for i, key in ipairs(K.page) do
  local payload = redis.call('DUMP', key)
  found[i] = {payload, redis.call('PEXPIRETIME', key)}
  bytes = bytes + (payload and #payload or 0)
  if bytes >= tonumber(A.most_bytes) then break end
end
return found
