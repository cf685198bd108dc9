-- What retests said of an experiment: it stands, falls or rises, and the best follows.
-- KEYS  1 experiment  2 tag  3 best under its comparability key  4 near misses  5 categories  6 status before  7 same of
--       its category  8 status after  9 same of its category  10 events
--       11... its trace, and those that stand on it
-- ARGV  1 id  2 number  3 tag  4 category  5 expected status  6 new status  7 expected version of the best
--       8 fields of the experiment as JSON  9 new fields of the best as JSON  10 near-miss score, or empty where it is none
--       11 confirmed | demoted | promoted | unconfirmed, or empty  12 event data  13 trace  14 best event data, or empty where the best stays the same experiment
--       15 fields of these traces, each as JSON, as JSON  16 their expected versions as JSON
-- Returns ok | stale
if redis.call('HGET', KEYS[1], 'status') ~= ARGV[5] then return 'stale' end
if redis.call('HGET', KEYS[3], 'version') ~= ARGV[7] then return 'stale' end
local grown, versions = cjson.decode(ARGV[15]), cjson.decode(ARGV[16])
for i = 11, #KEYS do
  if (redis.call('HGET', KEYS[i], 'version') or '0') ~= versions[i - 10] then return 'stale' end
end
local id = ARGV[1]
put(KEYS[1], ARGV[8])
if ARGV[6] ~= ARGV[5] then
  local up = ARGV[6] == 'keep' and 1 or -1
  redis.call('HSET', KEYS[1], 'status', ARGV[6])
  redis.call('HINCRBY', KEYS[2], 'kept', up)
  redis.call('HINCRBY', KEYS[2], 'discarded', -up)
  redis.call('HINCRBY', KEYS[5], ARGV[4] .. ':kept', up)
  move(KEYS[6], KEYS[7], KEYS[8], KEYS[9], ARGV[2], id)
  if ARGV[10] ~= '' then
    redis.call('ZADD', KEYS[4], ARGV[10], id)
  else
    redis.call('ZREM', KEYS[4], id)
  end
end
for i = 11, #KEYS do
  put(KEYS[i], grown[i - 10])
  redis.call('HINCRBY', KEYS[i], 'version', 1)
end
put(KEYS[3], ARGV[9])
redis.call('HINCRBY', KEYS[3], 'version', 1)
local told = {confirmed = 'experiment.confirmed', demoted = 'experiment.demoted', promoted = 'experiment.promoted',
  unconfirmed = 'experiment.unconfirmed'}
if told[ARGV[11]] then emit(KEYS[10], told[ARGV[11]], ARGV[3], id, ARGV[12], ARGV[13]) end
if ARGV[14] ~= '' then
  redis.call('HSET', KEYS[3], 'updated_at', clock(now()))
  emit(KEYS[10], 'best.changed', ARGV[3], cjson.decode(ARGV[14]).experiment_id, ARGV[14], ARGV[13])
end
return 'ok'
