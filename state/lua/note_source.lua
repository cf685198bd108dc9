-- A worker has checked out an attempt's code: what identifies it, and its patch where what was sent is not what is trained.
-- Its time limit begins now. A retest has its code from its first run, unless that is a claim: the lab has not seen its code
-- before.
-- parts: patches
-- keys: experiment attempts gpu first? tried
-- args: id first_id tag attempt fence tree_id patch_id? differs?
-- returns: ok | stale
local e = redis.call('HMGET', K.experiment, 'status', 'attempt', 'fence', 'diff_id', 'duplicate_of', 'started_at')
if e[1] ~= 'running' or e[2] ~= A.attempt or e[3] ~= A.fence then return 'stale' end
local t = now()
local is_new = redis.call('HSETNX', K.attempts, A.attempt .. ':built_at', clock(t)) == 1
if is_new and redis.call('HEXISTS', K.gpu, 'deadline') == 1 then
  redis.call('HINCRBYFLOAT', K.gpu, 'deadline', clock(t - tonumber(e[6])))
end
if K.first then
  local claim = redis.call('HMGET', K.first, 'claimed', 'measured_by')
  if claim[1] ~= 'true' or claim[2] then return 'ok' end
end
redis.call('HSET', K.experiment, 'tree_id', A.tree_id)
if redis.call('HSETNX', K.tried, 'tree:' .. A.tree_id, A.first_id) == 0 and not e[5] then
  local first = redis.call('HGET', K.tried, 'tree:' .. A.tree_id)
  if first ~= A.first_id then redis.call('HSET', K.experiment, 'duplicate_of', first) end
end
if not A.patch_id or e[4] == A.patch_id then return 'ok' end
store_patch()
redis.call('HSET', K.experiment, 'diff_id', A.patch_id)
if A.differs then redis.call('HSET', K.experiment, 'diff_differs', 'true', 'sent_diff_id', e[4]) end
return 'ok'
