-- Let a frozen dimension of a tag vary again.
-- parts: events dimensions
-- args: tag name data
-- `data`: of the event.
-- Returns the new version | stale
if dimensions_are_stale() then return 'stale' end
emit('dimension.unfrozen', A.tag, A.name, A.data)
return tostring(replace_dimensions())
