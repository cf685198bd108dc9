-- What a tag believes, changed only if it still is what the decision was made on.
-- keys: beliefs populations ended*
-- args: version shared_out? population_ids* population_texts*
-- `shared_out`: the workers were shared out anew, among these populations; `ended` are the configs that wait for those that
-- are none of them.

local function beliefs_are_stale()
  return (redis.call('HGET', K.beliefs, 'version') or '0') ~= A.version
end

local function change_beliefs()
  redis.call('HINCRBY', K.beliefs, 'version', 1)
  if not A.shared_out then return end
  redis.call('DEL', K.populations, unpack(K.ended))
  for i, id in ipairs(A.population_ids) do redis.call('HSET', K.populations, id, A.population_texts[i]) end
  redis.call('HSET', K.beliefs, 'allocated_at', redis.call('HGET', K.beliefs, 'results') or '0')
  redis.call('HINCRBY', K.beliefs, 'allocations', 1)
end
