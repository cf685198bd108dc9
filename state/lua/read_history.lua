-- A page of an index of experiments, in the order of numbers, with their records. Writes nothing.
-- keys: index
-- args: experiments limit from? newest?
-- returns: {total, number that the next page goes on after or '', {field, value, ...}, ...}
-- Retests have the number of the experiment that they repeat: a page holds all of one number.
local function between(low, high, most)
  if A.newest then return redis.call('ZREVRANGEBYSCORE', K.index, high, low, 'LIMIT', 0, most) end
  return redis.call('ZRANGEBYSCORE', K.index, low, high, 'LIMIT', 0, most)
end

local limit, from = tonumber(A.limit), A.from and '(' .. A.from
local members = between(not A.newest and from or '-inf', A.newest and from or '+inf', limit + 1)
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
local page = {redis.call('ZCARD', K.index), following}
for _, member in ipairs(members) do
  local fields = redis.call('HGETALL', A.experiments .. member)
  if #fields > 0 then page[#page + 1] = fields end
end
return page
