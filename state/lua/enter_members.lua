-- A step of a migration enters members into an index, if it still is this process's turn.
-- keys: migration index
-- args: token members*
-- returns: ok | lost (another process has taken the migration over)
-- Each of `members` is a score, a space and the member.
if redis.call('HGET', K.migration, 'token') ~= A.token then return 'lost' end
for _, entry in ipairs(A.members) do
  local score, member = entry:match('^(%S+) (.+)$')
  redis.call('ZADD', K.index, score, member)
end
return 'ok'
