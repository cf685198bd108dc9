-- A tag's forest: its newest node, and its own line, which grows in single mode.
-- keys: forest finished
-- args: tag

-- The newest node of the tag that another may be made from, and how many had finished with it. Nothing follows a fault of
-- the infrastructure, or what came in after its epoch. Kept in the forest from the first finish on; before, the finish
-- order says it.
local function newest_node()
  local f = redis.call('HMGET', K.forest, 'newest', 'newest_nth')
  if f[1] then return f[1] ~= '' and f[1] or nil, tonumber(f[2]) end
  local last = redis.call('ZREVRANGE', K.finished, 0, 0, 'WITHSCORES')
  return last[1], tonumber(last[2] or '0')
end

-- Bring the tag's own line up to date: what finished last is its tip, the best its base. Made where there is none.
local function follow_tag(trace, traces, best, trace_id, t)
  if redis.call('EXISTS', trace) == 0 then
    redis.call('HSET', trace, 'trace_id', trace_id, 'tag', A.tag, 'number', 0, 'created_at', clock(t), 'kind', 'new_root')
    redis.call('ZADD', traces, 0, trace_id)
  end
  local newest = newest_node()
  redis.call('HSET', trace, 'status', newest and 'live' or 'pending')
  redis.call('HDEL', trace, 'ended_at', 'reason', 'merged_into')
  if newest then
    redis.call('HSETNX', trace, 'root', redis.call('ZRANGE', K.finished, 0, 0)[1] or newest)
    redis.call('HSET', trace, 'tip', newest)
  end
  local b = redis.call('HMGET', best, 'experiment_id', 'commit_sha')
  redis.call('HSET', trace, 'base', b[1] or '', 'base_commit_sha', b[2] or '')
end
