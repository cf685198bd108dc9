-- Fire a function by hand, also where it is paused; once per request.
-- KEYS  1 schedule  2 its ticks  3 answer by request id
-- ARGV  1 function  2 overlap policy  3 request ttl in seconds, 0 without a request id
-- Returns {fired | waits | overlaps, when}
local first = redis.call('GET', KEYS[3])
if first and ARGV[3] ~= '0' then return {string.match(first, '^(%S+) (%S+)$')} end
local t = now()
local became = fire_unless_overlapping(KEYS[1], KEYS[2], ARGV[1], t, ARGV[2], clock(t), 0, 'true')
if ARGV[3] ~= '0' and became ~= 'overlaps' then
  redis.call('SET', KEYS[3], became .. ' ' .. clock(t), 'EX', ARGV[3])
end
return {became, clock(t)}
