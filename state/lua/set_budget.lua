-- Limit what a tag may spend; warns at once where so much of a new limit is gone.
-- parts: books
-- args: gpu_seconds? runs?
-- A limit is a number or `none`; one that is absent stays.
-- Returns no_tag | changed | same
if redis.call('EXISTS', K.tag) == 0 then return 'no_tag' end
local changed = false
for resource, after in pairs({gpu_seconds = A.gpu_seconds, runs = A.runs}) do
  local before = redis.call('HGET', K.tag, 'budget_' .. resource) or 'none'
  if after ~= before then
    changed = true
    redis.call('HDEL', K.tag, 'budget_' .. resource, 'warned_' .. resource)
    if after ~= 'none' then redis.call('HSET', K.tag, 'budget_' .. resource, after) end
    warn(resource, read_books()[resource])
  end
end
if changed then
  local b = redis.call('HMGET', K.tag, 'budget_gpu_seconds', 'budget_runs')
  emit('tag.budget_changed', A.tag, A.tag, string.format('{"tag":%s,"gpu_seconds":%s,"runs":%s}',
    cjson.encode(A.tag), b[1] or 'null', b[2] or 'null'))
end
return changed and 'changed' or 'same'
