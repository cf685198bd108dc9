-- Pause a tag: its waiting experiments leave the queues with their places, all at once. With a `stop_reason` its runs in
-- progress are told to stop. Agents that train themselves are told by their next heartbeat.
-- A script: all that waits leaves the queues at one moment, however much it is.
-- parts: events waiting
-- keys: tag paused fence queued queues* asides* leased running in_progress*
-- args: tag reason? stop_reason?
-- returns: {no_tag | stale} | {paused | already, its time, its reason or empty, number of waiting experiments}
--   stale: an experiment is queued or runs, and was not named
if redis.call('EXISTS', K.tag) == 0 then return {'no_tag'} end
local is_paused = redis.call('HEXISTS', K.tag, 'paused_at') == 1
local waiting = redis.call('ZCARD', K.queued)
if A.stop_reason then
  if redis.call('ZCARD', K.leased) + redis.call('ZCARD', K.running) ~= #K.in_progress then return {'stale'} end
  for _, experiment in ipairs(K.in_progress) do
    local status = redis.call('HGET', experiment, 'status')
    if status ~= 'leased' and status ~= 'running' then return {'stale'} end
  end
end
if not is_paused then
  if not are_all_found() then return {'stale'} end
  put_aside(true)
  local at = clock(now())
  redis.call('HSET', K.tag, 'paused_at', at)
  if A.reason then redis.call('HSET', K.tag, 'pause_reason', A.reason) end
  redis.call('ZADD', K.paused, at, A.tag)
  emit('tag.paused', A.tag, A.tag, cjson.encode({tag = A.tag, reason = A.reason, waiting = waiting}))
end
if A.stop_reason then
  redis.call('HSET', K.tag, 'stop_fence', redis.call('GET', K.fence) or '0')
  for _, experiment in ipairs(K.in_progress) do
    if redis.call('HGET', experiment, 'stopping') ~= 'true' then
      redis.call('HSET', experiment, 'stopping', 'true', 'stop_reason', A.stop_reason)
    end
  end
end
local since = redis.call('HMGET', K.tag, 'paused_at', 'pause_reason')
return {is_paused and 'already' or 'paused', since[1], since[2] or '', waiting}
