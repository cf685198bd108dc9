-- Ask a leased or running attempt to stop; its worker answers for the rest.
-- keys: experiment
-- args: status_before reason
-- returns: ok | stale
if redis.call('HGET', K.experiment, 'status') ~= A.status_before then return 'stale' end
redis.call('HSET', K.experiment, 'stopping', 'true', 'stop_reason', A.reason)
return 'ok'
