-- How far runs of the same code differ, for one tag and class of GPU: squared deviations and their degrees of freedom.
-- keys: noise?
-- args: df? squares?

-- Add what runs that came or left have changed of it.
local function change_noise()
  if A.df == '0' and tonumber(A.squares) == 0 then return end
  local n = redis.call('HMGET', K.noise, 'df', 'squares')
  local df = math.max(0, tonumber(n[1] or '0') + tonumber(A.df))
  local squares = math.max(0, tonumber(n[2] or '0') + tonumber(A.squares))
  redis.call('HSET', K.noise, 'df', df, 'squares', df == 0 and '0' or string.format('%.17g', squares))
end
