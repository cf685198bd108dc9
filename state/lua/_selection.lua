-- A selection: what one experiment is made from. It leaves `open` here and nowhere else.
-- parts: branch
-- keys: selection? trace? open_selections? traces?

-- Seconds for which a selection that is over is remembered, as an answer to its request id is.
local REMEMBERED_S = 86400

-- Close K.selection of K.trace, once: its slot and its trace's are free. A trace that was opened for it alone and has no
-- node ends with it, unless a node is just being committed. Returns whether it was open.
local function close_selection(status, why, t)
  local s = redis.call('HMGET', K.selection, 'status', 'selection_id', 'experiment_id')
  if s[1] ~= 'open' then return false end
  redis.call('HSET', K.selection, 'status', status, 'ended_at', clock(t))
  redis.call('EXPIRE', K.selection, REMEMBERED_S)
  redis.call('ZREM', K.open_selections, s[2])
  local left = redis.call('HINCRBY', K.trace, 'in_flight', -1)
  local f = redis.call('HMGET', K.trace, 'trace_id', 'status')
  emit('selection.' .. status, A.tag, s[2],
    cjson.encode({selection_id = s[2], trace_id = f[1], experiment_id = s[3] or nil, reason = why}))
  if status ~= 'committed' and f[2] == 'pending' and left == 0 then
    if s[3] then
      end_trace(K.trace, 'dead', 'its first experiment was never finished', t)
    else
      redis.call('DEL', K.trace)
      redis.call('ZREM', K.traces, f[1])
      redis.call('ZREM', K.live_traces, f[1])
    end
  end
  return true
end
