-- Patches are stored once by their content: what an owner adds is counted for a day from its first one on, what a tag's
-- experiments add counts against the tag's budget.
-- parts: books
-- keys: patch? patch_bytes? patch_uses
-- args: patch? most_patch_bytes?

local A_DAY_S = 86400

-- The tag's account of stored bytes, as those of `read_books`.
local function patch_account()
  local b = redis.call('HMGET', K.tag, 'spent_patch_bytes', 'budget_patch_bytes', 'warned_patch_bytes')
  return {reserved = '0', spent = b[1] or '0', limit = b[2], warned = b[3]}
end

-- Why this patch may not be added now: {full, seconds until its owner may} | {exhausted, patch_bytes, limit, spent, reserved,
-- needed}, or nil. An owner's first of a day always fits.
local function patch_overflow(t)
  if not K.patch or redis.call('EXISTS', K.patch) == 1 then return end
  local account = patch_account()
  if account.limit and account.spent + #A.patch > tonumber(account.limit) then
    return {'exhausted', 'patch_bytes', account.limit, account.spent, account.reserved, tostring(#A.patch)}
  end
  local added = K.patch_bytes and tonumber(redis.call('GET', K.patch_bytes) or '0') or 0
  if added == 0 or added + #A.patch <= tonumber(A.most_patch_bytes) then return end
  return {'full', string.format('%.3f', math.max(redis.call('PEXPIRETIME', K.patch_bytes) / 1000 - t, 0.001))}
end

-- What stands there already is not written again, unless it is something else: its content is not what it is named by.
local function store_patch()
  redis.call('INCR', K.patch_uses)
  if not redis.call('SET', K.patch, A.patch, 'NX') then
    if redis.call('GET', K.patch) ~= A.patch then redis.call('SET', K.patch, A.patch) end
    return
  end
  redis.call('HINCRBY', K.tag, 'spent_patch_bytes', #A.patch)
  warn('patch_bytes', patch_account())
  if not K.patch_bytes then return end
  if redis.call('INCRBY', K.patch_bytes, #A.patch) == #A.patch then redis.call('EXPIRE', K.patch_bytes, A_DAY_S) end
end
