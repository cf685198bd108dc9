-- Limit what a tag may spend; warns at once where so much of a new limit is gone.
-- parts: patches
-- args: gpu_seconds? runs? patch_bytes?
-- A limit is a number or `none`; one that is absent stays.
-- Returns no_tag | changed | same
if redis.call('EXISTS', K.tag) == 0 then return 'no_tag' end
local changed = false
local accounts = read_books()
accounts.patch_bytes = patch_account()
for resource, after in pairs({gpu_seconds = A.gpu_seconds, runs = A.runs, patch_bytes = A.patch_bytes}) do
  local before = redis.call('HGET', K.tag, 'budget_' .. resource) or 'none'
  if after ~= before then
    changed = true
    redis.call('HDEL', K.tag, 'budget_' .. resource, 'warned_' .. resource)
    local account = accounts[resource]
    account.limit, account.warned = false, false
    if after ~= 'none' then
      redis.call('HSET', K.tag, 'budget_' .. resource, after)
      account.limit = after
    end
    warn(resource, account)
  end
end
if changed then
  local b = redis.call('HMGET', K.tag, 'budget_gpu_seconds', 'budget_runs', 'budget_patch_bytes')
  emit('tag.budget_changed', A.tag, A.tag, string.format('{"tag":%s,"gpu_seconds":%s,"runs":%s,"patch_bytes":%s}',
    cjson.encode(A.tag), b[1] or 'null', b[2] or 'null', b[3] or 'null'))
end
return changed and 'changed' or 'same'
