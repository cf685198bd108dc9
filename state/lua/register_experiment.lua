-- Store an experiment, its patch and its place in the lineage, before anything runs.
-- KEYS  1 tag  2 experiment  3 lineage  4 status registered  5 the same of its category  6 category  7 patch
--       8 tried (patches and commits, each with its first experiment)  9 open  10 answer by request id  11 events
--       12 selection (the experiment where there is none)  13 open selections  14 forest
-- ARGV  1 id  2 number  3 experiment as JSON  4 compressed patch, or empty  5 patch id, or empty  6 commit
--       7 request ttl in seconds, 0 without a request id  8 tag  9 event data  10 trace  11 patience in seconds
--       12 digest of the request's body  13 seconds of a run to set aside from the tag's budget, or empty
--       14 selection that it is made from, or empty
-- Returns {ok, first experiment with this code or empty} | {repeat, id and digest of the first} | {no_tag} |
--   {exhausted, gpu_seconds or runs, limit, spent, reserved, needed} | {over, the selection is no longer open} |
--   {used, what was registered with it before} | {stale_epoch, that of the tag}
if redis.call('EXISTS', KEYS[1]) == 0 then return {'no_tag'} end
local first = ARGV[7] ~= '0' and redis.call('GET', KEYS[10])
if first then return {'repeat', first} end
local short = ARGV[13] ~= '' and shortage(KEYS[1], ms(ARGV[13]), 1)
if short then return short end
if ARGV[14] ~= '' then
  local s = redis.call('HMGET', KEYS[12], 'status', 'experiment_id', 'epoch')
  local epoch = redis.call('HGET', KEYS[14], 'epoch') or '1'
  if s[1] == 'open' and s[2] then return {'used', s[2]} end
  if s[3] ~= epoch then return {'stale_epoch', epoch} end
  if s[1] ~= 'open' or tonumber(redis.call('ZSCORE', KEYS[13], ARGV[14])) <= now() then return {'over'} end
  redis.call('HSET', KEYS[12], 'experiment_id', ARGV[1])
  redis.call('ZADD', KEYS[13], '+inf', ARGV[14])
end
if ARGV[7] ~= '0' then redis.call('SET', KEYS[10], ARGV[1] .. ' ' .. ARGV[12], 'EX', ARGV[7]) end
local t = clock(now())
local duplicate = false
if ARGV[5] ~= '' then
  redis.call('SET', KEYS[7], ARGV[4], 'NX')
  duplicate = redis.call('HGET', KEYS[8], 'diff:' .. ARGV[5])
  redis.call('HSETNX', KEYS[8], 'diff:' .. ARGV[5], ARGV[1])
end
duplicate = duplicate or redis.call('HGET', KEYS[8], 'commit:' .. ARGV[6])
redis.call('HSETNX', KEYS[8], 'commit:' .. ARGV[6], ARGV[1])
put(KEYS[2], ARGV[3])
redis.call('HSET', KEYS[2], 'registered_at', t)
if duplicate then redis.call('HSET', KEYS[2], 'duplicate_of', duplicate) end
redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[4], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[5], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[6], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[9], clock(now() + tonumber(ARGV[11])), ARGV[1])
emit(KEYS[11], 'experiment.registered', ARGV[8], ARGV[1], ARGV[9], ARGV[10])
if ARGV[13] ~= '' then reserve(KEYS[1], KEYS[11], ARGV[8], KEYS[2], ms(ARGV[13])) end
return {'ok', duplicate or ''}
