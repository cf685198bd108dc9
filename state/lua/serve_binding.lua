-- A process serves a consumer group: the group exists, and stays as long as a process says so.
-- `made`: the group was made with its webhook, and goes with it.
-- keys: stream bindings
-- args: group binding made?
-- returns: ok | gone
if A.made then
  if not redis.call('ZSCORE', K.bindings, A.binding) then return 'gone' end
else
  local created = redis.pcall('XGROUP', 'CREATE', K.stream, A.group, '0', 'MKSTREAM')
  if type(created) == 'table' and created.err and not string.find(created.err, 'BUSYGROUP', 1, true) then
    return created
  end
end
-- Hours without any served group do not count: the lab was off.
local t = now()
local newest = redis.call('ZRANGE', K.bindings, -1, -1, 'WITHSCORES')
if newest[2] and t - tonumber(newest[2]) > 600 then
  local silence = clock(t - tonumber(newest[2]))
  for _, binding in ipairs(redis.call('ZRANGE', K.bindings, 0, -1)) do
    redis.call('ZINCRBY', K.bindings, silence, binding)
  end
end
redis.call('ZADD', K.bindings, clock(t), A.binding)
return 'ok'
