-- Hold one dimension of a tag at one value.
-- parts: events dimensions
-- args: tag name data
-- `data`: of the event.
-- Returns the new version | stale
if dimensions_are_stale() then return 'stale' end
emit('dimension.frozen', A.tag, A.name, A.data)
return tostring(replace_dimensions())
