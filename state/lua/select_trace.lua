-- Select what one experiment is made from: the first eligible of the traces given, or a trace that is opened for it.
-- KEYS  1 tag  2 policy  3 forest  4 open selections  5 traces  6 live traces  7 the selection  8 the trace it would open
--       9 answer by request id  10 events  11 finish order  12 best  13... traces to choose from, most wanted first
-- ARGV  1 tag  2 expected version of the policy  3 expected select_seq  4 selection  5 kind: extend | new_root | branch |
--       merge  6 most open selections  7 most traces, live and pending; empty in single mode, in which the one trace
--       given is the tag's own line  8 most open selections of one trace, or empty  9 auto: the room for traces decided
--       whether one is opened | turn: one of those that grow has its turn | asked: the caller named it  10 lease in seconds  11 seconds of a run, or empty  12 the selection as
--       JSON, what depends on the trace aside  13 trace that it would open  14 its number  15 request ttl in seconds, 0
--       without a request id  16 digest of the request's body
--       17 the node that the trace it would open begins at, or empty
-- Returns {selected, fields...} | {repeat, id and digest of the first} | {stale} | {no_tag} | {expired} | {paused} |
--   {budget} | {no_slot, end of the earliest lease or empty} | {all_busy, the same} | {no_room} | {ended, status}
if redis.call('EXISTS', KEYS[1]) == 0 then return {'no_tag'} end
local first = ARGV[15] ~= '0' and redis.call('GET', KEYS[9])
if first then return {'repeat', first} end
local f = redis.call('HMGET', KEYS[3], 'select_seq', 'virtual_time', 'epoch')
if redis.call('HGET', KEYS[2], 'version') ~= ARGV[2] or (f[1] or '0') ~= ARGV[3] then return {'stale'} end
if redis.call('HEXISTS', KEYS[1], 'paused_at') == 1 then return {'paused'} end
if ARGV[11] ~= '' and shortage(KEYS[1], ms(ARGV[11]), 1) then return {'budget'} end
local t = now()
local earliest = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2] or ''
if earliest ~= '' and earliest ~= 'inf' and tonumber(earliest) <= t then return {'expired'} end
if redis.call('ZCARD', KEYS[4]) >= tonumber(ARGV[6]) then return {'no_slot', earliest} end

local kind, chosen = ARGV[5], nil
local opens = kind == 'new_root' or kind == 'branch'
if ARGV[7] ~= '' then
  local room = redis.call('ZCARD', KEYS[6]) < tonumber(ARGV[7])
  if ARGV[9] == 'auto' and opens ~= room then return {'stale'} end
  if opens and not room then return {'no_room'} end
end
if opens then
  chosen = 8
  redis.call('HSET', KEYS[8], 'trace_id', ARGV[13], 'tag', ARGV[1], 'number', ARGV[14], 'status', 'pending', 'kind', kind,
    'created_at', clock(t))
  if ARGV[17] ~= '' then redis.call('HSET', KEYS[8], 'origin', ARGV[17]) end
  redis.call('HSET', KEYS[3], 'last_trace', ARGV[14])
  redis.call('ZADD', KEYS[5], ARGV[14], ARGV[13])
  redis.call('ZADD', KEYS[6], ARGV[14], ARGV[13])
else
  if ARGV[7] == '' then follow(KEYS[13], KEYS[5], KEYS[3], KEYS[11], KEYS[12], ARGV[1], ARGV[13], t) end
  for i = 13, #KEYS do
    local tr = redis.call('HMGET', KEYS[i], 'status', 'in_flight')
    if ARGV[9] == 'asked' and tr[1] ~= 'live' and tr[1] ~= 'pending' then return {'ended', tr[1] or ''} end
    local grows = tr[1] == 'live' or ARGV[7] == ''
    if grows and (ARGV[8] == '' or tonumber(tr[2] or '0') < tonumber(ARGV[8])) then
      chosen = i
      break
    end
  end
  if not chosen then return {'all_busy', earliest} end
end

local seq = redis.call('HINCRBY', KEYS[3], 'select_seq', 1)
local tr = redis.call('HMGET', KEYS[chosen], 'trace_id', 'tip', 'base', 'base_commit_sha', 'virtual_time')
local turn = math.max(tonumber(tr[5] or '0'), tonumber(f[2] or '0')) -- as rules/traces.py says, next_turn
redis.call('HSET', KEYS[chosen], 'virtual_time', turn + 1, 'last_selected', seq)
redis.call('HINCRBY', KEYS[chosen], 'selections', 1)
redis.call('HINCRBY', KEYS[chosen], 'in_flight', 1)
redis.call('HSET', KEYS[3], 'virtual_time', turn)

local expiry = clock(t + tonumber(ARGV[10]))
put(KEYS[7], ARGV[12])
if kind == 'extend' and not tr[2] then kind = 'new_root' end
redis.call('HSET', KEYS[7], 'selection_id', ARGV[4], 'tag', ARGV[1], 'select_seq', seq, 'epoch', f[3] or '1', 'kind', kind,
  'trace_id', tr[1], 'status', 'open', 'lease_s', ARGV[10], 'created_at', clock(t), 'lease_expires_at', expiry,
  'finished_until', redis.call('ZCARD', KEYS[11]))
if not opens and tr[2] then redis.call('HSET', KEYS[7], 'expected_tip', tr[2]) end
if kind == 'extend' then
  redis.call('HSET', KEYS[7], 'parent_ids', cjson.encode({tr[2]}), 'local_selection', '[' .. number_of(tr[2]) .. ']')
  if tr[3] then redis.call('HSET', KEYS[7], 'base_experiment_id', tr[3], 'base_commit_sha', tr[4]) end
end
redis.call('ZADD', KEYS[4], expiry, ARGV[4])
if ARGV[15] ~= '0' then redis.call('SET', KEYS[9], ARGV[4] .. ' ' .. ARGV[16], 'EX', ARGV[15]) end
local s = redis.call('HMGET', KEYS[7], 'parent_ids', 'agent')
local data = string.format(
  '{"selection_id":%s,"trace_id":%s,"kind":"%s","parent_ids":%s,"select_seq":%d,"agent":%s}',
  cjson.encode(ARGV[4]), cjson.encode(tr[1]), kind, s[1] or '[]', seq, s[2] and cjson.encode(s[2]) or 'null')
emit(KEYS[10], 'selection.opened', ARGV[1], ARGV[4], data)
return {'selected', redis.call('HGETALL', KEYS[7])}
