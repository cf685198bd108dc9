-- Replace a tag's dimensions, and create the tag where it is missing.
-- parts: tag dimensions
-- args: tag exists? defined frozen* froze*
-- `exists`: the decision was made on a tag that was there. `defined`: data of an event. `frozen`, `froze`: the names of
-- dimensions that begin frozen, and the data of their events.
-- Returns the new version | stale
local exists = redis.call('EXISTS', K.tag) == 1
if exists ~= (A.exists ~= nil) or dimensions_are_stale() then return 'stale' end
if not exists then create_tag() end
local version = replace_dimensions()
emit('dimension.defined', A.tag, A.tag, A.defined)
for i, name in ipairs(A.frozen) do emit('dimension.frozen', A.tag, name, A.froze[i]) end
return tostring(version)
