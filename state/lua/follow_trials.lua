-- Let trials of proposed dimensions begin and end, and ask for further dimensions.
-- parts: events stalls
-- keys: dimensions
-- args: tag dimensions_version values? defined? asked? wanted? adopted* adopted_data* promoted* promoted_data* reverted* reverted_data*
-- `values`: the tag's dimensions from now on, with `defined`, the data of that event. `asked`: the stall cycle in which
-- dimensions are asked for, with `wanted`, the data of that event. The others are names, and the data of their events.
-- Returns ok | stale
if stalls_are_stale() then return 'stale' end
if (redis.call('HGET', K.dimensions, 'version') or '0') ~= A.dimensions_version then return 'stale' end
change_proposals()
for i, name in ipairs(A.adopted) do emit('dimension.adopted', A.tag, name, A.adopted_data[i]) end
for i, name in ipairs(A.promoted) do emit('dimension.promoted', A.tag, name, A.promoted_data[i]) end
for i, name in ipairs(A.reverted) do emit('dimension.reverted', A.tag, name, A.reverted_data[i]) end
if A.values then
  redis.call('HSET', K.dimensions, 'values', A.values)
  redis.call('HINCRBY', K.dimensions, 'version', 1)
  emit('dimension.defined', A.tag, A.tag, A.defined)
end
if A.wanted then
  redis.call('HSET', K.stalls, 'asked', A.asked)
  emit('dimension.wanted', A.tag, A.tag, A.wanted)
end
return 'ok'
