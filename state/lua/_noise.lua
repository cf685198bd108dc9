-- Noise of one tag and class of GPU: squared deviations with their degrees of freedom. Beside them stand the runs of each
-- code, and of each worker and code.
-- keys: noise?
-- args: df? squares? noise_names* noise_before* noise_after*

-- Whether the decision used other runs.
local function noise_changed()
  for i, name in ipairs(A.noise_names) do
    if (redis.call('HGET', K.noise, name) or '') ~= A.noise_before[i] then return true end
  end
  return false
end

-- Add what runs that came or left have changed of it.
local function change_noise()
  for i, name in ipairs(A.noise_names) do
    if A.noise_after[i] == '' then
      redis.call('HDEL', K.noise, name)
    else
      redis.call('HSET', K.noise, name, A.noise_after[i])
    end
  end
  if A.df == '0' and tonumber(A.squares) == 0 then return end
  local n = redis.call('HMGET', K.noise, 'df', 'squares')
  local df = math.max(0, tonumber(n[1] or '0') + tonumber(A.df))
  local squares = math.max(0, tonumber(n[2] or '0') + tonumber(A.squares))
  redis.call('HSET', K.noise, 'df', df, 'squares', df == 0 and '0' or string.format('%.17g', squares))
end
