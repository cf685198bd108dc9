-- Drop what nobody is due any more: entries that are old, beyond the newest, and finished by every group; groups that
-- nobody serves; consumers that are gone and left nothing unfinished.
-- KEYS  1 stream  2 when each binding was last served
-- ARGV  1 the stream's name among the bindings  2 seconds for which entries are kept  3 newest entries that are kept
--       4 seconds after which an unserved group is dropped  5 seconds after which a silent consumer is dropped
--       6 most entries to drop now  7 forget: the stream goes with its last group
-- Returns JSON: dropped, length, groups and consumers (dropped), held (group, since) where a group holds entries back
local t = now()

local function parts(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end

local function before(a, b)
  local a_ms, a_n = parts(a)
  local b_ms, b_n = parts(b)
  return a_ms < b_ms or a_ms == b_ms and a_n < b_n
end

local function after(id)
  local ms, n = parts(id)
  return string.format('%.0f-%.0f', ms, n + 1)
end

local function facts(row)
  local found = {}
  for i = 1, #row, 2 do found[row[i]] = row[i + 1] end
  return found
end

local length = redis.call('XLEN', KEYS[1])
local dropped_groups, dropped_consumers = {}, 0
local floor, holder, groups = nil, nil, 0

for _, row in ipairs(redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}) do
  local group = facts(row)
  local binding = ARGV[1] .. ' ' .. group.name
  redis.call('ZADD', KEYS[2], 'NX', clock(t), binding) -- one that was there before anybody stamped it
  if t - tonumber(redis.call('ZSCORE', KEYS[2], binding)) > tonumber(ARGV[4]) then
    redis.call('XGROUP', 'DESTROY', KEYS[1], group.name)
    redis.call('ZREM', KEYS[2], binding)
    dropped_groups[#dropped_groups + 1] = group.name
  else
    groups = groups + 1
    local needs = after(group['last-delivered-id'])
    if group.pending > 0 then
      local oldest = redis.call('XPENDING', KEYS[1], group.name)[2]
      if before(oldest, needs) then needs = oldest end
    end
    if not floor or before(needs, floor) then floor, holder = needs, group.name end
    for _, each in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], group.name)) do
      local consumer = facts(each)
      -- With something pending it stays: deleting it would lose that.
      if consumer.pending == 0 and consumer.idle > tonumber(ARGV[5]) * 1000 then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], group.name, consumer.name)
        dropped_consumers = dropped_consumers + 1
      end
    end
  end
end

local dropped, held = 0, nil
local excess = math.min(length - tonumber(ARGV[3]), tonumber(ARGV[6]))
if groups == 0 and ARGV[7] == 'forget' then
  dropped = length
  redis.call('DEL', KEYS[1])
elseif excess > 0 then
  local cut = string.format('%.0f-0', math.max(0, (t - tonumber(ARGV[2])) * 1000))
  local next_one = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', excess + 1)[excess + 1]
  if next_one and before(next_one[1], cut) then cut = next_one[1] end
  if floor and before(floor, cut) then
    cut, held = floor, {group = holder, since = floor}
  end
  dropped = redis.call('XTRIM', KEYS[1], 'MINID', '=', cut)
end
return cjson.encode({dropped = dropped, length = length - dropped, groups = dropped_groups,
  consumers = dropped_consumers, held = held})
