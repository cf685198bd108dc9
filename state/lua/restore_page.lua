-- Write some keys of a backup, or remove what an earlier restore left.
-- keys: restoring page*
-- args: token silent_s payloads* expiries*
-- `payloads`: empty removes the key; `expiries`: milliseconds since 1970, 0 for none.
-- returns: ok | lost (another restore goes on)
if redis.call('HGET', K.restoring, 'token') ~= A.token then return 'lost' end
redis.call('HSET', K.restoring, 'until', clock(now() + tonumber(A.silent_s)))
for i, key in ipairs(K.page) do
  if A.payloads[i] == '' then
    redis.call('UNLINK', key)
  else
    redis.call('RESTORE', key, A.expiries[i], A.payloads[i], 'REPLACE', 'ABSTTL')
  end
end
return 'ok'
