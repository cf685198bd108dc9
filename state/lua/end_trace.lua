-- Close a trace: it is selected no more. What is under way on it may still come in.
-- KEYS  1 trace  2 live traces  3 events
-- ARGV  1 tag  2 reason
-- Returns ok | {status that it had}
local status = redis.call('HGET', KEYS[1], 'status')
if status ~= 'live' and status ~= 'pending' then return {status or ''} end
end_trace(KEYS[1], KEYS[2], KEYS[3], ARGV[1], 'closed', ARGV[2], now())
return 'ok'
