-- Fire a function by hand, also where it is paused; once per request.
-- parts: firings
-- keys: answer?
-- args: overlap ttl_s
-- returns: {fired | waits | overlaps, when}
local first = K.answer and redis.call('GET', K.answer)
if first then return {string.match(first, '^(%S+) (%S+)$')} end
local t = now()
local became = fire_unless_overlapping(t, A.overlap, clock(t), 0, 'true')
if K.answer and became ~= 'overlaps' then
  redis.call('SET', K.answer, became .. ' ' .. clock(t), 'EX', A.ttl_s)
end
return {became, clock(t)}
