-- Patches are stored once by their content: what a tag's experiments add counts against the tag's budget, and against
-- their owner's quota.
-- parts: books
-- keys: patch? patch_uses
-- args: patch?

-- The tag's account of stored bytes, as those of `read_books`.
local function patch_account()
  local b = redis.call('HMGET', K.tag, 'spent_patch_bytes', 'budget_patch_bytes', 'warned_patch_bytes')
  return {reserved = '0', spent = b[1] or '0', limit = b[2], warned = b[3]}
end

-- Why this patch, and all else that the move stores, may not be added now: {quota_full, seconds} |
-- {exhausted, patch_bytes, limit, spent, reserved, needed}, or nil.
local function overflow()
  if not K.patch then return quota_full(given_bytes()) end
  if redis.call('EXISTS', K.patch) == 1 then return quota_full(given_bytes() - #A.patch) end
  local account = patch_account()
  if account.limit and account.spent + #A.patch > tonumber(account.limit) then
    return {'exhausted', 'patch_bytes', account.limit, account.spent, account.reserved, tostring(#A.patch)}
  end
  return quota_full(given_bytes())
end

-- What stands there already is not written again, unless it is something else: its content is not what it is named by.
local function store_patch()
  redis.call('INCR', K.patch_uses)
  uncounted = given_bytes() - #A.patch
  if not redis.call('SET', K.patch, A.patch, 'NX') then
    if redis.call('GET', K.patch) ~= A.patch then redis.call('SET', K.patch, A.patch) end
    return
  end
  redis.call('HINCRBY', K.tag, 'spent_patch_bytes', #A.patch)
  warn('patch_bytes', patch_account())
  count_stored(#A.patch)
end
