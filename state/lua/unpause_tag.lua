-- Put a paused tag's experiments back into the queues, each in its old place.
-- KEYS  1 tag  2 paused tags  3 status queued  4 events  5 common queue  6 where those of it are parked
--       7... the same two of every GPU that a waiting experiment is pinned to
-- ARGV  1 tag
-- Returns no_tag | stale (one is parked where it was not looked for) | resumed | already
if redis.call('EXISTS', KEYS[1]) == 0 then return 'no_tag' end
if redis.call('HEXISTS', KEYS[1], 'paused_at') == 0 then return 'already' end
local waiting, parked = redis.call('ZCARD', KEYS[3]), 0
for i = 5, #KEYS, 2 do parked = parked + redis.call('ZCARD', KEYS[i + 1]) end
if parked ~= waiting then return 'stale' end
for i = 5, #KEYS, 2 do
  redis.call('ZUNIONSTORE', KEYS[i], 2, KEYS[i], KEYS[i + 1], 'AGGREGATE', 'MAX')
  redis.call('DEL', KEYS[i + 1])
end
local reason = redis.call('HGET', KEYS[1], 'pause_reason')
redis.call('HDEL', KEYS[1], 'paused_at', 'pause_reason')
redis.call('ZREM', KEYS[2], ARGV[1])
emit(KEYS[4], 'tag.resumed', ARGV[1], ARGV[1],
  cjson.encode({tag = ARGV[1], lifted = 'pause', reason = reason or nil, waiting = waiting}))
return 'resumed'
