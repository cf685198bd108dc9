-- Open a selection on the chosen trace, or on one that is opened for it, unless its grounds have changed.
-- Without trace_turn the trace is the tag's own line in single mode, which follows the tag.
-- parts: events
-- keys: tag forest finished policy open_selections traces live_traces trace best request?
-- args: policy_version select_seq? places? tip? most_open most_in_flight?
-- args: tag selections kind trace_id opens? origin? owner? trace_turn? forest_turn? lease_s values ttl_s? digest?
-- returns: {selected, {field, value, ...}} | {repeat, id and digest of the first} | {stale}

-- The newest node of the tag that another may be made from, and how many had finished with it. Nothing follows a fault of
-- the infrastructure, or what came in after its epoch. Kept in the forest from the first finish on; before, the finish
-- order says it.
local function newest_node()
  local f = redis.call('HMGET', K.forest, 'newest', 'newest_nth')
  if f[1] then return f[1] ~= '' and f[1] or nil, tonumber(f[2]) end
  local last = redis.call('ZREVRANGE', K.finished, 0, 0, 'WITHSCORES')
  return last[1], tonumber(last[2] or '0')
end

-- Bring the tag's own line up to date: what finished last is its tip, the best its base. Made where there is none.
local function follow_tag(trace, traces, best, trace_id, t)
  if redis.call('EXISTS', trace) == 0 then
    redis.call('HSET', trace, 'trace_id', trace_id, 'tag', A.tag, 'number', 0, 'created_at', clock(t), 'kind', 'new_root')
    redis.call('ZADD', traces, 0, trace_id)
  end
  local newest = newest_node()
  redis.call('HSET', trace, 'status', newest and 'live' or 'pending')
  redis.call('HDEL', trace, 'ended_at', 'reason', 'merged_into')
  if newest then
    redis.call('HSETNX', trace, 'root', redis.call('ZRANGE', K.finished, 0, 0)[1] or newest)
    redis.call('HSET', trace, 'tip', newest)
  end
  local b = redis.call('HMGET', best, 'experiment_id', 'commit_sha')
  redis.call('HSET', trace, 'base', b[1] or '', 'base_commit_sha', b[2] or '')
end

-- Set the fields of a hash from a JSON object whose values are all text.
local function put(key, json)
  if not json or json == '' then return end
  local words = {}
  for field, value in pairs(cjson.decode(json)) do
    words[#words + 1] = field
    words[#words + 1] = value
  end
  if #words > 0 then redis.call('HSET', key, unpack(words)) end
end

local first = K.request and redis.call('GET', K.request)
if first then return {'repeat', first} end
local counters = redis.call('HMGET', K.forest, 'select_seq', 'epoch')
local trace = redis.call('HMGET', K.trace, 'status', 'in_flight', 'tip')
if redis.call('HGET', K.policy, 'version') ~= A.policy_version
  or redis.call('HEXISTS', K.tag, 'paused_at') == 1
  or redis.call('ZCARD', K.open_selections) >= tonumber(A.most_open)
  or A.select_seq and A.select_seq ~= (counters[1] or '0')
  or A.places and redis.call('ZCARD', K.live_traces) ~= tonumber(A.places)
  or A.trace_turn and not A.opens and trace[1] ~= 'live'
  or A.most_in_flight and tonumber(trace[2] or '0') >= tonumber(A.most_in_flight)
  or A.tip and A.tip ~= trace[3] then
  return {'stale'}
end

local t = now()
if A.opens then
  redis.call('HSET', K.trace, 'trace_id', A.trace_id, 'tag', A.tag, 'number', A.opens, 'status', 'pending', 'kind', A.kind,
    'created_at', clock(t))
  if A.origin then redis.call('HSET', K.trace, 'origin', A.origin) end
  if A.owner then redis.call('HSET', K.trace, 'owner', A.owner) end
  redis.call('HSET', K.forest, 'last_trace', A.opens)
  redis.call('ZADD', K.traces, A.opens, A.trace_id)
  redis.call('ZADD', K.live_traces, A.opens, A.trace_id)
elseif not A.trace_turn then
  follow_tag(K.trace, K.traces, K.best, A.trace_id, t)
end
local seq = redis.call('HINCRBY', K.forest, 'select_seq', 1)
redis.call('HSET', K.trace, 'last_selected', seq)
redis.call('HINCRBY', K.trace, 'selections', 1)
redis.call('HINCRBY', K.trace, 'in_flight', 1)
if A.trace_turn then
  redis.call('HSET', K.trace, 'virtual_time', A.trace_turn)
  redis.call('HSET', K.forest, 'virtual_time', A.forest_turn)
end

local f = redis.call('HMGET', K.trace, 'tip', 'base', 'base_commit_sha')
local tip, kind, parents = not A.opens and f[1], A.kind, '[]'
local id = A.tag .. '-s' .. seq
local selection, expiry = A.selections .. id, clock(t + tonumber(A.lease_s))
if kind == 'extend' and not tip then kind = 'new_root' end
put(selection, A.values)
redis.call('HSET', selection, 'selection_id', id, 'tag', A.tag, 'select_seq', seq, 'epoch', counters[2] or '1', 'kind', kind,
  'trace_id', A.trace_id, 'status', 'open', 'lease_s', A.lease_s, 'created_at', clock(t), 'lease_expires_at', expiry,
  'finished_until', redis.call('HGET', K.tag, 'finishes') or '0')
if tip then redis.call('HSET', selection, 'expected_tip', tip) end
if kind == 'extend' then
  redis.call('HSET', selection, 'parent_ids', cjson.encode({tip}), 'local_selection', '[' .. string.match(tip, '%d+$') .. ']')
  if f[2] then redis.call('HSET', selection, 'base_experiment_id', f[2], 'base_commit_sha', f[3]) end
end
redis.call('ZADD', K.open_selections, expiry, id)
if K.request then redis.call('SET', K.request, id .. ' ' .. A.digest, 'EX', A.ttl_s) end
local s = redis.call('HMGET', selection, 'parent_ids', 'agent')
emit('selection.opened', A.tag, id, string.format(
  '{"selection_id":%s,"trace_id":%s,"kind":"%s","parent_ids":%s,"select_seq":%d,"agent":%s}',
  cjson.encode(id), cjson.encode(A.trace_id), kind, s[1] or '[]', seq, s[2] and cjson.encode(s[2]) or 'null'))
return {'selected', redis.call('HGETALL', selection)}
