-- Trim a stream. It drops old entries beyond the newest ones that every group has finished. Groups without a process go,
-- and consumers that are gone and left nothing unfinished. `forget`: the stream goes with its last group.
-- parts: streams
-- keys: stream bindings
-- args: name keep_s keep unserved_s silent_s most forget?
-- returns: JSON: dropped, length, groups and consumers (dropped), held (group, since) where a group holds entries back
local t = now()

local function after(id)
  local ms, n = parts(id)
  return string.format('%.0f-%.0f', ms, n + 1)
end

local length = redis.call('XLEN', K.stream)
local dropped_groups, dropped_consumers = {}, 0
local floor, holder, groups = nil, nil, 0

for _, row in ipairs(redis.call('EXISTS', K.stream) == 1 and redis.call('XINFO', 'GROUPS', K.stream) or {}) do
  local group = facts(row)
  local binding = A.name .. ' ' .. group.name
  redis.call('ZADD', K.bindings, 'NX', clock(t), binding) -- a group older than these stamps
  if t - tonumber(redis.call('ZSCORE', K.bindings, binding)) > tonumber(A.unserved_s) then
    redis.call('XGROUP', 'DESTROY', K.stream, group.name)
    redis.call('ZREM', K.bindings, binding)
    dropped_groups[#dropped_groups + 1] = group.name
  else
    groups = groups + 1
    local needs = after(group['last-delivered-id'])
    if group.pending > 0 then
      local oldest = redis.call('XPENDING', K.stream, group.name)[2]
      if before(oldest, needs) then needs = oldest end
    end
    if not floor or before(needs, floor) then floor, holder = needs, group.name end
    for _, each in ipairs(redis.call('XINFO', 'CONSUMERS', K.stream, group.name)) do
      local consumer = facts(each)
      -- With something pending it stays: deleting it would lose that.
      if consumer.pending == 0 and consumer.idle > tonumber(A.silent_s) * 1000 then
        redis.call('XGROUP', 'DELCONSUMER', K.stream, group.name, consumer.name)
        dropped_consumers = dropped_consumers + 1
      end
    end
  end
end

local dropped, held = 0, nil
local excess = math.min(length - tonumber(A.keep), tonumber(A.most))
if groups == 0 and A.forget then
  dropped = length
  redis.call('DEL', K.stream)
elseif excess > 0 then
  local cut = string.format('%.0f-0', math.max(0, (t - tonumber(A.keep_s)) * 1000))
  local next_one = redis.call('XRANGE', K.stream, '-', '+', 'COUNT', excess + 1)[excess + 1]
  if next_one and before(next_one[1], cut) then cut = next_one[1] end
  if floor and before(floor, cut) then
    cut, held = floor, {group = holder, since = floor}
  end
  dropped = redis.call('XTRIM', K.stream, 'MINID', '=', cut)
end
return cjson.encode({dropped = dropped, length = length - dropped, groups = dropped_groups,
  consumers = dropped_consumers, held = held})
