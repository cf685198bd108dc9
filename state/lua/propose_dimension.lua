-- Enter a proposed dimension, or count it once more.
-- parts: events stalls
-- args: tag name data
-- `data`: of the event.
-- Returns ok | stale
if stalls_are_stale() then return 'stale' end
change_proposals()
emit('dimension.proposed', A.tag, A.name, A.data)
return 'ok'
