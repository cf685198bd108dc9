-- A step of a migration is done: the lab has the next schema.
-- KEYS  1 schema  2 migration
-- ARGV  1 token  2 schema before  3 schema after  4 1 where that was the last step
-- Returns ok | lost (another process has taken the migration over)
if redis.call('HGET', KEYS[2], 'token') ~= ARGV[1] or redis.call('GET', KEYS[1]) ~= ARGV[2] then return 'lost' end
redis.call('SET', KEYS[1], ARGV[3])
if ARGV[4] == '1' then redis.call('DEL', KEYS[2]) end
return 'ok'
