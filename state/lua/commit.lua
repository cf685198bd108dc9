-- Commit a change of `state/change.py`: check its guards, number what it makes, write it, and tell of it.
-- parts: events
-- keys: on*
-- args: guards plan blobs*
-- A word of the plan is text, or a list of parts that are joined. A part is text, a number, {s}, or {n, d}.
-- A number above 0 is the nth one that is handed out. 0 is this moment, {s} is s seconds later. Below 0 it is a blob.
-- {n, d} are the last d digits of the nth number.
-- A key is its place in `on`, or such a list.
-- returns: {this moment, each number handed out, each count}, or {stale, the first guard that does not hold}
local plan, numbers, t, on = cjson.decode(A.plan), {}, now(), K.on
local moment = clock(t)

local function text(word)
  if type(word) == 'string' then return word end
  local parts = {}
  for i, part in ipairs(word) do
    if type(part) == 'table' then
      local n, digits = unpack(part)
      parts[i] = digits and string.format('%0' .. digits .. 'd', numbers[n] % 10 ^ digits) or clock(t + n)
    else parts[i] = type(part) == 'string' and part or part > 0 and numbers[part] or part == 0 and moment or A.blobs[-part] end
  end
  return table.concat(parts)
end

local function call(command, key, words)
  for i, word in ipairs(words) do
    if type(word) ~= 'string' then words[i] = text(word) end
  end
  key = type(key) == 'number' and on[key] or text(key)
  if not string.find(command, ' ', 1, true) then return redis.call(command, key, unpack(words)) end
  local name, verb = string.match(command, '^(%S+) (.*)$')
  return redis.call(name, verb, key, unpack(words))
end

local function holds(command, key, words, expected)
  local found = call(command, key, words)
  if command == 'HMGET' then
    for i, value in ipairs(expected) do
      if (found[i] or cjson.null) ~= value then return false end
    end
    return true
  end
  if command == 'XRANGE' then return #found == expected end
  if command == 'ZSCORE' then return tonumber(found or nil) == tonumber(expected or nil) end
  return found == expected
end

for nth, guard in ipairs(cjson.decode(A.guards)) do
  if not holds(unpack(guard)) then return {'stale', nth} end
end
if plan.before and tonumber(moment) > tonumber(plan.before) then return {'stale', 0} end
local full = plan.fits and quota_full(given_bytes() - #A.guards)
if full then return full end
for nth, room in ipairs(plan.rooms) do
  local sum = 0
  for _, found in ipairs(redis.call('HMGET', on[room[1]], unpack(room[2]))) do sum = sum + tonumber(found or 0) end
  if sum > room[3] then return {'stale', -nth} end
end
for nth, number in ipairs(plan.numbers) do
  local key, field, least = on[number[1]], number[2], number[3]
  if least then
    local own, other = unpack(redis.call('HMGET', key, field, least))
    redis.call('HSET', key, field, string.format('%d', math.max((own or -1) + 1, tonumber(other or 0)) - 1))
  end
  numbers[nth] = string.format('%d', redis.call('HINCRBY', key, field, 1))
end
for _, write in ipairs(plan.writes) do call(unpack(write)) end
uncounted = given_bytes() - #A.guards
for _, event in ipairs(plan.events) do
  local tell = event[6] and emit or append
  tell(event[1], event[2], text(event[3]), text(event[4]), event[5] or nil)
end
for _, count in ipairs(plan.counts) do
  numbers[#numbers + 1] = redis.call('ZCOUNT', on[count[1]], '-inf', text(count[2]))
end
return {moment, unpack(numbers)}
