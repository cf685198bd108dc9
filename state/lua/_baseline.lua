-- The baseline of a tag comes first: until it has ended, nothing else of the tag is dispatched.
-- keys: tag?

-- Whether it has to wait for the baseline: it is neither that nor a retest of it.
local function waits_for_baseline(id)
  local t = redis.call('HMGET', K.tag, 'awaits_baseline', 'baseline_id')
  return t[1] == 'true' and id ~= t[2] and string.sub(id, 1, #t[2] + 1) ~= t[2] .. '.'
end
