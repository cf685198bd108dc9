-- Read the members of an index with the hashes that they name, in one round trip. Writes nothing.
-- parts: rows
-- keys: index
-- args: hashes low high offset limit newest? fields* brief? holding?
-- returns: {{member, its values of the fields}, ...}; without fields {{member, {field, value, ...}}, ...}
-- With `brief` experiments come without their constants and metrics. With `holding` members are left out whose first field does not hold this text.
local high = A.high == 'now' and clock(now()) or A.high
local members
if A.newest then
  members = redis.call('ZREVRANGEBYSCORE', K.index, high, A.low, 'LIMIT', A.offset, A.limit)
else
  members = redis.call('ZRANGEBYSCORE', K.index, A.low, high, 'LIMIT', A.offset, A.limit)
end
local found = {}
for _, member in ipairs(members) do
  local hash = A.hashes .. member
  local values
  if #A.fields > 0 then values = redis.call('HMGET', hash, unpack(A.fields))
  else values = A.brief and brief(hash) or redis.call('HGETALL', hash) end
  if not A.holding or string.find(values[1] or '', A.holding, 1, true) then found[#found + 1] = {member, values} end
end
return found
