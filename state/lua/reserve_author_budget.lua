-- Reserve the most that one request to a language model may cost, of the day's budget; UTC days.
-- keys: author_budget
-- args: id tokens micro_usd tokens_a_day micro_usd_a_day
-- returns: {ok}, also where it was reserved before; or {exhausted, seconds until the next day}
local t = now()
local day = string.format('%d', math.floor(t / 86400))
local budget = K.author_budget
if redis.call('HGET', budget, 'day') ~= day then
  redis.call('DEL', budget)
  redis.call('HSET', budget, 'day', day, 'tokens', '0', 'micro_usd', '0')
end
if redis.call('HEXISTS', budget, 'open:' .. A.id) == 1 then return {'ok'} end
local tokens = tonumber(redis.call('HGET', budget, 'tokens')) + tonumber(A.tokens)
local micro_usd = tonumber(redis.call('HGET', budget, 'micro_usd')) + tonumber(A.micro_usd)
if tokens > tonumber(A.tokens_a_day) or micro_usd > tonumber(A.micro_usd_a_day) then
  return {'exhausted', clock((tonumber(day) + 1) * 86400 - t)}
end
redis.call('HINCRBY', budget, 'tokens', A.tokens)
redis.call('HINCRBY', budget, 'micro_usd', A.micro_usd)
redis.call('HSET', budget, 'open:' .. A.id, A.tokens .. ' ' .. A.micro_usd)
return {'ok'}
