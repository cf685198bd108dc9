-- How far the event handlers are behind. Writes nothing.
-- A script: each group is read further by what it has read, in one round trip.
-- parts: streams
-- keys: events dead_letters
-- returns: {Redis' clock, length of the stream, dead letters, {group, undelivered or -1, unacknowledged, oldest or empty}, ...}
local found = {clock(now()), redis.call('XLEN', K.events), redis.call('XLEN', K.dead_letters)}
local groups = redis.pcall('XINFO', 'GROUPS', K.events)  -- an error where there is no stream yet
for _, row in ipairs(groups.err and {} or groups) do
  local g, oldest = facts(row), nil
  if g.pending > 0 then
    oldest = redis.call('XPENDING', K.events, g.name)[2]
  else
    local first = redis.call('XRANGE', K.events, '(' .. g['last-delivered-id'], '+', 'COUNT', 1)[1]
    oldest = first and first[1]
  end
  found[#found + 1] = {g.name, g.lag or -1, g.pending, oldest or ''}
end
return found
