-- A page of an index of experiments, in the order of numbers, with their records. Writes nothing.
-- keys: index filter?
-- args: experiments limit from? newest? most_bytes?
-- returns: {total, number that the next page goes on after or '', {field, value, ...}, ...}
-- Retests have the number of the experiment that they repeat: a page holds all of one number. With a `filter`, only what
-- that index holds, too; then `index` holds no retests. A page ends after the number with which it has `most_bytes`.
local AT_ONCE = 500

local function between(low, high, most)
  if A.newest then return redis.call('ZREVRANGEBYSCORE', K.index, high, low, 'LIMIT', 0, most) end
  return redis.call('ZRANGEBYSCORE', K.index, low, high, 'LIMIT', 0, most)
end

-- The first members that the filter holds, too.
local function passing(low, high, most)
  local found = {}
  repeat
    local some = between(low, high, AT_ONCE)
    for _, member in ipairs(some) do
      if redis.call('ZSCORE', K.filter, member) then found[#found + 1] = member end
      if #found == most then return found end
    end
    local reached = #some > 0 and '(' .. redis.call('ZSCORE', K.index, some[#some])
    if A.newest then high = reached else low = reached end
  until #some < AT_ONCE
  return found
end

local limit, from = tonumber(A.limit), A.from and '(' .. A.from
local first = K.filter and passing or between
local members = first(not A.newest and from or '-inf', A.newest and from or '+inf', limit + 1)
local following = ''
if #members > limit then
  following = redis.call('ZSCORE', K.index, members[limit])
  local seen = {}
  members[limit + 1] = nil
  for _, member in ipairs(members) do seen[member] = true end
  for _, member in ipairs(between(following, following, -1)) do
    if not seen[member] then members[#members + 1] = member end
  end
end
local total = K.filter and redis.call('ZINTERCARD', 2, K.index, K.filter) or redis.call('ZCARD', K.index)
local page, bytes, most = {total, following}, 0, tonumber(A.most_bytes or 'inf')
for nth, member in ipairs(members) do
  local fields = redis.call('HGETALL', A.experiments .. member)
  if #fields > 0 then page[#page + 1] = fields end
  for _, text in ipairs(fields) do bytes = bytes + #text end
  if bytes >= most and members[nth + 1] then
    local number = redis.call('ZSCORE', K.index, member)
    if redis.call('ZSCORE', K.index, members[nth + 1]) ~= number then
      page[2] = number
      break
    end
  end
end
return page
