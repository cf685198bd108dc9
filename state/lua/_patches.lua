-- Patches are stored once by their content; what an owner adds is counted for a day from its first one on.
-- keys: patch? patch_bytes?
-- args: patch? most_patch_bytes?

local A_DAY_S = 86400

-- Why the owner may add no patch now: {full, seconds until it may}, or nil. The first of a day always fits.
local function patch_overflow(t)
  if not K.patch_bytes or redis.call('EXISTS', K.patch) == 1 then return end
  local added = tonumber(redis.call('GET', K.patch_bytes) or '0')
  if added == 0 or added + #A.patch <= tonumber(A.most_patch_bytes) then return end
  return {'full', string.format('%.3f', math.max(redis.call('PEXPIRETIME', K.patch_bytes) / 1000 - t, 0.001))}
end

local function store_patch()
  if not redis.call('SET', K.patch, A.patch, 'NX') or not K.patch_bytes then return end
  if redis.call('INCRBY', K.patch_bytes, #A.patch) == #A.patch then redis.call('EXPIRE', K.patch_bytes, A_DAY_S) end
end
