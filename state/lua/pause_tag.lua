-- Pause a tag: its waiting experiments leave the queues with their places, all at once.
-- KEYS  1 tag  2 paused tags  3 status queued  4 events  5 common queue  6 where those of it are parked
--       7... the same two of every GPU that a waiting experiment is pinned to
-- ARGV  1 tag  2 reason, or empty
-- Returns no_tag | stale (one waits in a queue that was not named) | paused | already
if redis.call('EXISTS', KEYS[1]) == 0 then return 'no_tag' end
if redis.call('HEXISTS', KEYS[1], 'paused_at') == 1 then return 'already' end
local waiting, parked = redis.call('ZCARD', KEYS[3]), 0
for i = 5, #KEYS, 2 do
  parked = parked + redis.call('ZINTERSTORE', KEYS[i + 1], 2, KEYS[i], KEYS[3], 'WEIGHTS', 1, 0)
end
if parked ~= waiting then
  for i = 5, #KEYS, 2 do redis.call('DEL', KEYS[i + 1]) end
  return 'stale'
end
for i = 5, #KEYS, 2 do redis.call('ZDIFFSTORE', KEYS[i], 2, KEYS[i], KEYS[i + 1]) end
local t = clock(now())
redis.call('HSET', KEYS[1], 'paused_at', t)
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'pause_reason', ARGV[2]) end
redis.call('ZADD', KEYS[2], t, ARGV[1])
emit(KEYS[4], 'tag.paused', ARGV[1], ARGV[1],
  cjson.encode({tag = ARGV[1], reason = ARGV[2] ~= '' and ARGV[2] or nil, waiting = waiting}))
return 'paused'
