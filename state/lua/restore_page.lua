-- Write some keys of a backup, or remove what an earlier restore left.
-- KEYS  1 restoring  2... keys
-- ARGV  1 token  2 seconds that it may be silent  3... per key its payload (empty: it goes) and its expiry in
--       milliseconds since 1970 (0: none)
-- Returns ok | lost (another restore goes on)
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'lost' end
redis.call('HSET', KEYS[1], 'until', clock(now() + tonumber(ARGV[2])))
for i = 2, #KEYS do
  local at = 2 * i
  local payload, expiry = ARGV[at - 1], ARGV[at]
  if payload == '' then
    redis.call('UNLINK', KEYS[i])
  else
    redis.call('RESTORE', KEYS[i], expiry, payload, 'REPLACE', 'ABSTTL')
  end
end
return 'ok'
