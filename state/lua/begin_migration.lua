-- One of several processes brings an older lab to a newer schema; asking again with its token prolongs its turn.
-- KEYS  1 schema  2 migration
-- ARGV  1 token  2 schema it was read with  3 seconds that it may be silent
-- Returns ours | busy | moved (the schema is another by now)
local t = now()
local turn = redis.call('HMGET', KEYS[2], 'token', 'until')
if turn[1] and turn[1] ~= ARGV[1] and tonumber(turn[2]) > t then return 'busy' end
if turn[1] ~= ARGV[1] and redis.call('GET', KEYS[1]) ~= ARGV[2] then return 'moved' end
redis.call('HSET', KEYS[2], 'token', ARGV[1], 'until', clock(t + tonumber(ARGV[3])), 'from', ARGV[2])
return 'ours'
