-- One of several processes brings an older lab to a newer schema; asking again with its token prolongs its turn.
-- keys: schema migration
-- args: token found turn_s
-- returns: ours | busy | moved (the schema is another by now)
local t = now()
local turn = redis.call('HMGET', K.migration, 'token', 'until')
if turn[1] and turn[1] ~= A.token and tonumber(turn[2]) > t then return 'busy' end
if turn[1] ~= A.token and redis.call('GET', K.schema) ~= A.found then return 'moved' end
redis.call('HSET', K.migration, 'token', A.token, 'until', clock(t + tonumber(A.turn_s)), 'from', A.found)
return 'ours'
