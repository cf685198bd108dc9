-- Let a trace that has ended grow again, if there is room for one more.
-- parts: events
-- keys: trace live_traces policy
-- args: tag id number most_traces policy_version
-- returns: ok | stale | growing, it has not ended | rootless | no_room
if redis.call('HGET', K.policy, 'version') ~= A.policy_version then return 'stale' end
local f = redis.call('HMGET', K.trace, 'status', 'tip')
if f[1] == 'live' or f[1] == 'pending' then return 'growing' end
if not f[2] then return 'rootless' end
if redis.call('ZCARD', K.live_traces) >= tonumber(A.most_traces) then return 'no_room' end
redis.call('HSET', K.trace, 'status', 'live', 'crashes_in_a_row', 0, 'since_best', 0)
redis.call('HDEL', K.trace, 'ended_at', 'reason', 'merged_into')
redis.call('HINCRBY', K.trace, 'version', 1)
redis.call('ZADD', K.live_traces, A.number, A.id)
emit('trace.reopened', A.tag, A.id, cjson.encode({trace_id = A.id}))
return 'ok'
