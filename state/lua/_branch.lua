-- A trace: one branch of a tag's experiments.
-- parts: events
-- keys: live_traces
-- args: tag

-- A trace grows no more.
local function end_trace(trace, status, reason, t)
  local id = redis.call('HGET', trace, 'trace_id')
  redis.call('HSET', trace, 'status', status, 'reason', reason, 'ended_at', clock(t))
  redis.call('HINCRBY', trace, 'version', 1)
  redis.call('ZREM', K.live_traces, id)
  emit('trace.ended', A.tag, id, cjson.encode({trace_id = id, status = status, reason = reason}))
end
