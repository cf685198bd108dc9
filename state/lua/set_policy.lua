-- Replace a tag's policy, if it still has the version that was read. Another mode of its traces begins an epoch, as
-- new_epoch does. The tag's own line grows in single mode; in multi mode it is one trace of several, where there is room.
-- parts: branch forest
-- keys: tag policy open_selections own_line traces best prioritised*
-- args: version values mode_before mode_after most_traces own_line new_epoch? priorities*
-- `priorities`: how much the traces `prioritised` are wanted now.
-- returns: the new version | stale
if redis.call('HGET', K.policy, 'version') ~= A.version then return 'stale' end
redis.call('HSET', K.policy, 'values', A.values)
for i, trace in ipairs(K.prioritised) do redis.call('HSET', trace, 'priority', A.priorities[i]) end
local t = now()
if A.mode_before ~= A.mode_after or A.new_epoch then
  redis.call('HSET', K.forest, 'epoch', (redis.call('HGET', K.forest, 'epoch') or '1') + 1)
  for _, unused in ipairs(redis.call('ZRANGEBYSCORE', K.open_selections, '-inf', '(+inf')) do
    redis.call('ZADD', K.open_selections, clock(t), unused)
  end
end
if A.mode_before == 'multi' and A.mode_after == 'single' then
  redis.call('HSET', K.forest, 'single_since', redis.call('HGET', K.tag, 'finishes') or '0')
  redis.call('ZREM', K.live_traces, A.own_line)
elseif A.mode_before == 'single' and A.mode_after == 'multi' then
  local _, nth = newest_node()
  local grew = nth > tonumber(redis.call('HGET', K.forest, 'single_since') or '0')
  if grew then follow_tag(K.own_line, K.traces, K.best, A.own_line, t) end
  if redis.call('HGET', K.own_line, 'status') == 'live' then
    if redis.call('ZCARD', K.live_traces) < tonumber(A.most_traces) then
      redis.call('ZADD', K.live_traces, 0, A.own_line)
    else
      end_trace(K.own_line, 'closed', 'the tag has as many traces as it may have', t)
    end
  end
end
return tostring(redis.call('HINCRBY', K.policy, 'version', 1))
