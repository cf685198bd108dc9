-- Names of tokens: two that differ by case alone are the same.
-- keys: token_names

-- The name as `token_names` has it: in lower case. Names of a lab of an earlier version are brought to it once; of two
-- that are the same then, the living one stays.
local function fold_names(name)
  if redis.call('HSETNX', K.token_names, '', 'folded') == 1 then
    local names = redis.call('HGETALL', K.token_names)
    for i = 1, #names, 2 do
      local folded, id = string.lower(names[i]), names[i + 1]
      if folded ~= names[i] then
        local other = redis.call('HGET', K.token_names, folded)
        if not other or string.sub(other, 1, 1) == '-' then redis.call('HSET', K.token_names, folded, id) end
        redis.call('HDEL', K.token_names, names[i])
      end
    end
  end
  return string.lower(name)
end
