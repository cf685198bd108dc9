-- A tag's proposed dimensions and the stall cycles of its search, changed only if they still are what the decision was
-- made on.
-- keys: stalls proposed_dimensions
-- args: version ids* texts* cycle cycle_at

local function stalls_are_stale()
  return (redis.call('HGET', K.stalls, 'version') or '0') ~= A.version
end

local function change_proposals()
  redis.call('HINCRBY', K.stalls, 'version', 1)
  redis.call('HSET', K.stalls, 'cycle', A.cycle, 'cycle_at', A.cycle_at)
  for i, id in ipairs(A.ids) do redis.call('HSET', K.proposed_dimensions, id, A.texts[i]) end
end
