-- Write down how a delivery to a receiver went; what operators look at, no state that decides anything.
-- KEYS  1 webhooks  2 how its deliveries went
-- ARGV  1 id  2 HTTP status, or empty  3 what went wrong, or empty
-- Returns ok | gone
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 'gone' end
redis.call('HINCRBY', KEYS[2], ARGV[3] == '' and 'delivered' or 'failed', 1)
redis.call('HSET', KEYS[2], 'last_at', clock(now()), 'last_status', ARGV[2], 'last_error', ARGV[3])
return 'ok'
