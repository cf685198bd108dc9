-- An experiment with every further run of its code. Writes nothing.
-- A script: the experiment names its retests, in one round trip.
-- keys: experiment? best?
-- args: tag? experiments? named_by? fields*
-- returns: {{field, value, ...}, ...}: the experiment, then its retests in the order in which they were begun
-- `named_by`: a field of `experiment`, or of the tag's `best`, that names the experiment to read.
-- With `fields` their values alone, in this order.
local key = K.experiment
if A.named_by then key = A.experiments .. (redis.call('HGET', key or K.best, A.named_by) or '') end
local names, found = {key}, {}
for nth = 2, 1 + tonumber(redis.call('HGET', key, 'retests') or 0) do names[nth] = key .. '.' .. nth end
for _, name in ipairs(names) do
  if redis.call('EXISTS', name) == 1 then
    found[#found + 1] = #A.fields > 0 and redis.call('HMGET', name, unpack(A.fields)) or redis.call('HGETALL', name)
  end
end
return found
