-- The baseline of a tag comes first: until it has ended, nothing else of the tag is dispatched.
-- keys: tag? baselines?

-- Whether it has to wait for the baseline: it is neither that nor a retest of it.
local function waits_for_baseline(id)
  local t = redis.call('HMGET', K.tag, 'awaits_baseline', 'baseline_id')
  return t[1] == 'true' and id ~= t[2] and string.sub(id, 1, #t[2] + 1) ~= t[2] .. '.'
end

-- Whether there is a baseline already.
local function has_baseline()
  return redis.call('HEXISTS', K.tag, 'baseline_id') == 1
end

-- From now on the others wait for it.
local function begin_baseline(id, at)
  redis.call('HSET', K.tag, 'baseline_id', id, 'awaits_baseline', 'true')
  redis.call('ZADD', K.baselines, at, A.tag)
end
