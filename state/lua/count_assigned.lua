-- How many of the workers that were seen within the last seconds belong to each population. Writes nothing.
-- keys: index assigned
-- args: within_s
-- Returns populations and counts by turns.
local AT_ONCE = 5000
local names = redis.call('ZRANGEBYSCORE', K.index, clock(now() - tonumber(A.within_s)), '+inf')
local counts, answer = {}, {}
for first = 1, #names, AT_ONCE do
  local last = math.min(first + AT_ONCE - 1, #names)
  for _, population in ipairs(redis.call('HMGET', K.assigned, unpack(names, first, last))) do
    if population then counts[population] = (counts[population] or 0) + 1 end
  end
end
for population, count in pairs(counts) do
  table.insert(answer, population)
  table.insert(answer, count)
end
return answer
