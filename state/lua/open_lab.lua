-- A process opens the lab; the first one makes it.
-- KEYS  1 schema  2 identity  3 restoring
-- ARGV  1 schema of this version  2 random name
-- Returns {schema found, identity} | {restoring}
if redis.call('EXISTS', KEYS[3]) == 1 then return {'restoring'} end
redis.call('SET', KEYS[2], ARGV[2], 'NX')
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])}
