-- Enter a proposed dimension, or count it once more.
-- parts: events stalls
-- args: tag dropped? name data
-- `dropped`: the one that leaves a full list for it. `data`: of the event.
-- Returns ok | stale
if stalls_are_stale() then return 'stale' end
if A.dropped then redis.call('HDEL', K.proposed_dimensions, A.dropped) end
change_proposals()
emit('dimension.proposed', A.tag, A.name, A.data)
return 'ok'
