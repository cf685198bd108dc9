-- In front of every move: K and A hold its keys and values by name; Redis' clock; a hash from JSON.
-- args: traceparent?

-- Reads names like `tag sources=2` off a list of values. A name that the move does not declare is an error.
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

-- Set the fields of a hash from a JSON object whose values are all text.
local function put(key, json)
  if not json or json == '' then return end
  local words = {}
  for field, value in pairs(cjson.decode(json)) do
    words[#words + 1] = field
    words[#words + 1] = value
  end
  if #words > 0 then redis.call('HSET', key, unpack(words)) end
end
