-- Open a restored lab to its processes, as a lab of its own: no attempt or fence of its earlier life means anything.
-- KEYS  1 restoring  2 identity  3 fence
-- ARGV  1 token  2 random name  3 how far the fence leaps
-- Returns ok | lost (another restore goes on)
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'lost' end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('INCRBY', KEYS[3], ARGV[3])
redis.call('DEL', KEYS[1])
return 'ok'
