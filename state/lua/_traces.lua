-- Shared by the scripts that move traces: a selection leaves `open` here and nowhere else.

-- How long a selection that is over is remembered, as an answer to its request id is.
local REMEMBERED_S = 86400

-- The number at the end of an experiment's id.
local function number_of(id)
  return string.match(id, '-(%d+)$')
end

-- A trace grows no more.
local function end_trace(trace, live, events, tag, status, reason, t)
  local id = redis.call('HGET', trace, 'trace_id')
  redis.call('HSET', trace, 'status', status, 'reason', reason, 'ended_at', clock(t))
  redis.call('HINCRBY', trace, 'version', 1)
  redis.call('ZREM', live, id)
  emit(events, 'trace.ended', tag, id, cjson.encode({trace_id = id, status = status, reason = reason}))
end

-- A selection leaves `open`, once: its slot and its trace's are free. A trace that was opened for it alone and has no
-- node ends with it, unless a node is just being committed. Returns whether it was open.
local function close_selection(selection, open, trace, live, traces, events, tag, status, why, t)
  local s = redis.call('HMGET', selection, 'status', 'selection_id', 'experiment_id')
  if s[1] ~= 'open' then return false end
  redis.call('HSET', selection, 'status', status, 'ended_at', clock(t))
  redis.call('EXPIRE', selection, REMEMBERED_S)
  redis.call('ZREM', open, s[2])
  local left = redis.call('HINCRBY', trace, 'in_flight', -1)
  local f = redis.call('HMGET', trace, 'trace_id', 'status')
  local data = {selection_id = s[2], trace_id = f[1], experiment_id = s[3] or nil, reason = why}
  emit(events, 'selection.' .. status, tag, s[2], cjson.encode(data))
  if status ~= 'committed' and f[2] == 'pending' and left == 0 then
    if s[3] then
      end_trace(trace, live, events, tag, 'dead', 'its first experiment was never finished', t)
    else
      redis.call('DEL', trace)
      redis.call('ZREM', traces, f[1])
      redis.call('ZREM', live, f[1])
    end
  end
  return true
end

-- The newest node of a tag that another may be made from, and how many had finished with it. Nothing follows a fault of
-- the infrastructure, or what came in after its epoch. Kept in the forest from the first finish on; before, the finish
-- order says it.
local function newest_of(forest, finished)
  local f = redis.call('HMGET', forest, 'newest', 'newest_nth')
  if f[1] then return f[1] ~= '' and f[1] or nil, tonumber(f[2]) end
  return redis.call('ZREVRANGE', finished, 0, 0)[1], redis.call('ZCARD', finished)
end

-- The tag's own line, which grows in single mode: what finished last is its tip, the best its base. Made where there is
-- none.
local function follow(trace, traces, forest, finished, best, tag, trace_id, t)
  if redis.call('EXISTS', trace) == 0 then
    redis.call('HSET', trace, 'trace_id', trace_id, 'tag', tag, 'number', 0, 'created_at', clock(t), 'kind', 'new_root')
    redis.call('ZADD', traces, 0, trace_id)
  end
  local newest = newest_of(forest, finished)
  redis.call('HSET', trace, 'status', newest and 'live' or 'pending')
  redis.call('HDEL', trace, 'ended_at', 'reason', 'merged_into')
  if newest then
    redis.call('HSETNX', trace, 'root', redis.call('ZRANGE', finished, 0, 0)[1])
    redis.call('HSET', trace, 'tip', newest)
  end
  local b = redis.call('HMGET', best, 'experiment_id', 'commit_sha')
  if b[1] then redis.call('HSET', trace, 'base', b[1], 'base_commit_sha', b[2]) end
end
