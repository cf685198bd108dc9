-- Remove patches that the archive holds, unless one has been used since their experiments were read.
-- parts: events
-- keys: patches* patch_uses archived
-- args: tag digests* uses
-- returns: how many were removed | stale
if (redis.call('GET', K.patch_uses) or '0') ~= A.uses then return 'stale' end
local at, removed, bytes = clock(now()), 0, 0
for i, patch in ipairs(K.patches) do
  local size = redis.call('STRLEN', patch)
  if redis.call('UNLINK', patch) == 1 then
    redis.call('ZADD', K.archived, at, A.digests[i])
    removed, bytes = removed + 1, bytes + size
  end
end
if removed > 0 then
  emit('tag.patches_archived', A.tag, A.tag, string.format('{"tag":%s,"patches":%d,"bytes":%d}', cjson.encode(A.tag), removed, bytes))
end
return removed
