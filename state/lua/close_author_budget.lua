-- Put what a request to a language model has cost in the place of what was reserved for it.
-- keys: author_budget
-- args: id tokens micro_usd
-- returns: ok; gone where it is closed already, or belongs to a day that is over
local field = 'open:' .. A.id
local reserved = redis.call('HGET', K.author_budget, field)
if not reserved then return 'gone' end
local tokens, micro_usd = string.match(reserved, '^(%d+) (%d+)$')
redis.call('HINCRBY', K.author_budget, 'tokens', tonumber(A.tokens) - tonumber(tokens))
redis.call('HINCRBY', K.author_budget, 'micro_usd', tonumber(A.micro_usd) - tonumber(micro_usd))
redis.call('HDEL', K.author_budget, field)
return 'ok'
