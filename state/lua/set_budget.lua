-- Limit what a tag may spend; warns at once where 80 % of a new limit are gone.
-- KEYS  1 tag  2 events
-- ARGV  1 tag  2 GPU seconds: a limit, none, or empty to leave it  3 runs: the same
-- Returns no_tag | changed | same
if redis.call('EXISTS', KEYS[1]) == 0 then return 'no_tag' end
local changed = false
for i, resource in ipairs({'gpu_seconds', 'runs'}) do
  local before, after = redis.call('HGET', KEYS[1], 'budget_' .. resource) or 'none', ARGV[i + 1]
  if after ~= '' and after ~= before then
    changed = true
    redis.call('HDEL', KEYS[1], 'budget_' .. resource, 'warned_' .. resource)
    if after ~= 'none' then redis.call('HSET', KEYS[1], 'budget_' .. resource, after) end
    warn(KEYS[1], KEYS[2], ARGV[1], resource)
  end
end
if changed then
  local b = redis.call('HMGET', KEYS[1], 'budget_gpu_seconds', 'budget_runs')
  emit(KEYS[2], 'tag.budget_changed', ARGV[1], ARGV[1], string.format('{"tag":%s,"gpu_seconds":%s,"runs":%s}',
    cjson.encode(ARGV[1]), b[1] or 'null', b[2] or 'null'))
end
return changed and 'changed' or 'same'
