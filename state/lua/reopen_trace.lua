-- Let a trace that has ended grow again, if there is room for one more.
-- KEYS  1 trace  2 live traces  3 events  4 policy
-- ARGV  1 tag  2 trace  3 number  4 most traces, live and pending  5 expected version of the
--       policy
-- Returns ok | stale | live, it is already | rootless | no_room
if redis.call('HGET', KEYS[4], 'version') ~= ARGV[5] then return 'stale' end
local f = redis.call('HMGET', KEYS[1], 'status', 'tip')
if f[1] == 'live' or f[1] == 'pending' then return 'live' end
if not f[2] then return 'rootless' end
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) then return 'no_room' end
redis.call('HSET', KEYS[1], 'status', 'live', 'crashes_in_a_row', 0, 'since_best', 0)
redis.call('HDEL', KEYS[1], 'ended_at', 'reason', 'merged_into')
redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[2])
emit(KEYS[3], 'trace.reopened', ARGV[1], ARGV[2], cjson.encode({trace_id = ARGV[2]}))
return 'ok'
