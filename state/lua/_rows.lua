-- Experiments as lists read them: without what no list shows and a run may have much of, with the beginning of its error.

local LEFT_OUT = {config_delta = true, metrics = true}
local ERROR_BYTES = 4000

-- The beginning of a text in UTF-8; no character is cut in two.
local function beginning(text, bytes)
  local following = string.byte(text, bytes + 1)
  while following and following >= 128 and following < 192 do
    bytes = bytes - 1
    following = string.byte(text, bytes + 1)
  end
  return string.sub(text, 1, bytes)
end

local function brief(hash)
  local all, kept = redis.call('HGETALL', hash), {}
  for i = 1, #all, 2 do
    local name, value = all[i], all[i + 1]
    if not LEFT_OUT[name] then
      kept[#kept + 1] = name
      kept[#kept + 1] = name == 'error' and beginning(value, ERROR_BYTES) or value
    end
  end
  return kept
end
