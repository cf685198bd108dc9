-- In front of every move: K and A hold its keys and values by name; Redis' clock; the day quota of stored bytes of
-- the caller's owner.
-- keys: stored?
-- args: traceparent? most_stored?

-- Reads names like `tag sources=2` off a list of values. A list that is absent is empty. A name that the move does not
-- declare is an error.
local function by_name(names, values)
  local found, at = {}, 1
  for name, several in string.gmatch(names, '([%w_]+)=?(%d*)') do
    if several == '' then
      found[name], at = values[at], at + 1
    else
      local list = {}
      for i = 1, tonumber(several) do list[i] = values[at + i - 1] end
      found[name], at = list, at + #list
    end
  end
  return setmetatable(found, {__index = function(_, name)
    if string.find(LISTS, ' ' .. name .. ' ', 1, true) then return {} end
    if not string.find(OPTIONAL, ' ' .. name .. ' ', 1, true) then
      error('this move was given no ' .. tostring(name) .. ': declare it in its header')
    end
  end})
end

-- The first value holds the names of all keys and of all other values.
local key_names, arg_names = string.match(table.remove(ARGV, 1), '^(.*)|(.*)$')
local K, A = by_name(key_names, KEYS), by_name(arg_names, ARGV)

local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) + tonumber(t[2]) / 1000000
end

-- A time as text, in microseconds as TIME knows them.
local function clock(t)
  return string.format('%.6f', t)
end

local A_DAY_S = 86400

-- Bytes of the values of this move.
local function given_bytes()
  local bytes = 0
  for _, value in ipairs(ARGV) do bytes = bytes + #value end
  return bytes
end

-- Count stored bytes for a day from the owner's first one on.
local function count_stored(bytes)
  if K.stored and redis.call('HINCRBY', K.stored, 'bytes', bytes) == bytes then redis.call('EXPIRE', K.stored, A_DAY_S) end
end

-- Why so many more bytes may not be stored now: {quota_full, seconds until they may}, or nil. The first of a day always fit.
local function quota_full(bytes)
  if not A.most_stored then return end
  local stored = tonumber(redis.call('HGET', K.stored, 'bytes') or '0')
  if stored == 0 or stored + bytes <= tonumber(A.most_stored) then return end
  return {'quota_full', string.format('%.3f', math.max(redis.call('PEXPIRETIME', K.stored) / 1000 - now(), 0.001))}
end

local full = quota_full(0)
if full then return full end
