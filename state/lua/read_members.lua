-- Read the members of an index with the hashes that they name, in one round trip. Writes nothing.
-- A script: the index names the hashes, in one round trip.
-- parts: rows
-- keys: index
-- args: hashes low high offset limit newest? fields* brief? holding? texts* most_bytes?
-- returns: {{member, its values of the fields}, ...}; without fields {{member, {field, value, ...}}, ...}
-- With `brief` experiments come without their constants and metrics. With `holding` members are left out whose first field does not hold this text.
-- With `most_bytes` longer values are left out; those of the fields `texts` are cut.
local high = A.high == 'now' and clock(now()) or A.high
local members
if A.newest then
  members = redis.call('ZREVRANGEBYSCORE', K.index, high, A.low, 'LIMIT', A.offset, A.limit)
else
  members = redis.call('ZRANGEBYSCORE', K.index, A.low, high, 'LIMIT', A.offset, A.limit)
end
local found = {}
local most, is_text = tonumber(A.most_bytes or 'inf'), {}
for _, field in ipairs(A.texts) do is_text[field] = true end

local function within(values)
  for i, value in ipairs(values) do
    if value and #value > most then values[i] = is_text[A.fields[i]] and beginning(value, most) or false end
  end
  return values
end

for _, member in ipairs(members) do
  local hash = A.hashes .. member
  local values
  if #A.fields > 0 then values = within(redis.call('HMGET', hash, unpack(A.fields)))
  else values = A.brief and brief(hash) or redis.call('HGETALL', hash) end
  if not A.holding or string.find(values[1] or '', A.holding, 1, true) then found[#found + 1] = {member, values} end
end
return found
