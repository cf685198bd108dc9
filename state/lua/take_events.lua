-- Give a consumer those entries of a stream that it names, and pass over the others up to `last`.
-- A script: no guard watches a group's last entry. XREADGROUP would deliver every entry to every group.
-- parts: streams
-- keys: stream
-- args: group consumer since passed last ids*
-- returns: {the group's last entry, ids taken ...}; empty where there is no such group
local group
local groups = redis.pcall('XINFO', 'GROUPS', K.stream)  -- an error where there is no stream
for _, row in ipairs(groups.err and {} or groups) do
  local each = facts(row)
  if each.name == A.group then group = each end
end
if not group then return {} end
local seen = group['last-delivered-id']
-- A group that is behind `since` was made again.
if before(seen, A.since) or not before(seen, A.last) then return {seen} end
local claim = {'XCLAIM', K.stream, A.group, A.consumer, 0}
for _, id in ipairs(A.ids) do
  if before(seen, id) then claim[#claim + 1] = id end
end
local answer = {A.last, unpack(claim, 6)}
-- Another process may have taken the first of them.
local passed = seen == A.since and A.passed or #redis.call('XRANGE', K.stream, '(' .. seen, A.last)
local read = group['entries-read']
if not read and seen == '0-0' then  -- what was trimmed counts as read
  local stream = facts(redis.call('XINFO', 'STREAM', K.stream))
  read = stream['entries-added'] - stream.length
end
read = read and read + passed or -1
redis.call('XGROUP', 'SETID', K.stream, A.group, A.last, 'ENTRIESREAD', read)
if answer[2] then
  claim[#claim + 1] = 'FORCE'
  claim[#claim + 1] = 'JUSTID'
  redis.call(unpack(claim))
end
return answer
