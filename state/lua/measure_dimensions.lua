-- Note how much each dimension of a tag matters.
-- parts: events dimensions
-- args: tag data
-- `data`: of the event.
-- Returns the new version | stale
if dimensions_are_stale() then return 'stale' end
emit('dimension.measured', A.tag, A.tag, A.data)
return tostring(replace_dimensions())
