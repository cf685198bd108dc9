-- Ask a leased or running attempt to stop; its worker answers for the rest.
-- KEYS  1 experiment
-- ARGV  1 expected status  2 reason
-- Returns ok | stale
if redis.call('HGET', KEYS[1], 'status') ~= ARGV[1] then return 'stale' end
redis.call('HSET', KEYS[1], 'stopping', 'true', 'stop_reason', ARGV[2])
return 'ok'
