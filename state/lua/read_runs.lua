-- An experiment, named or the best of a tag, with every further run of its code. Writes nothing.
-- keys: experiment? best?
-- args: tag? experiments?
-- returns: {{field, value, ...}, ...}: the experiment, then its retests in the order in which they were begun
local key = K.experiment or A.experiments .. (redis.call('HGET', K.best, 'experiment_id') or '')
local found = {redis.call('HGETALL', key)}
if #found[1] == 0 then return {} end
for nth = 2, 1 + tonumber(redis.call('HGET', key, 'retests') or 0) do
  local retest = redis.call('HGETALL', key .. '.' .. nth)
  if #retest > 0 then found[#found + 1] = retest end
end
return found
