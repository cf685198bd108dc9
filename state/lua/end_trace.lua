-- Close a trace: it is selected no more. What is under way on it may still come in.
-- parts: branch
-- keys: trace
-- args: reason
-- returns: ok | over, it has ended before
local status = redis.call('HGET', K.trace, 'status')
if status ~= 'live' and status ~= 'pending' then return 'over' end
end_trace(K.trace, 'closed', A.reason, now())
return 'ok'
