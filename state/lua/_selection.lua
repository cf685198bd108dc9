-- A selection: what one experiment is made from. It leaves `open` here, or without one in `state/traces/selecting.py`.
-- parts: branch
-- keys: selection? trace? open_selections?

-- Seconds for which a selection that is over is remembered, as an answer to its request id is.
local REMEMBERED_S = 86400

-- Close K.selection of K.trace with its experiment, once: its slot and its trace's are free. A trace that was opened for
-- it alone and has no node ends with it, unless a node is just being committed.
local function close_selection(status, why, t)
  local s = redis.call('HMGET', K.selection, 'status', 'selection_id', 'experiment_id')
  if s[1] ~= 'open' then return end
  redis.call('HSET', K.selection, 'status', status, 'ended_at', clock(t))
  redis.call('EXPIRE', K.selection, REMEMBERED_S)
  redis.call('ZREM', K.open_selections, s[2])
  local left = redis.call('HINCRBY', K.trace, 'in_flight', -1)
  local f = redis.call('HMGET', K.trace, 'trace_id', 'status')
  emit('selection.' .. status, A.tag, s[2],
    cjson.encode({selection_id = s[2], trace_id = f[1], experiment_id = s[3], reason = why}))
  if status ~= 'committed' and f[2] == 'pending' and left == 0 then
    end_trace(K.trace, 'dead', 'its first experiment was never finished', t)
  end
end
