-- The tag's baseline has ended: what waited for it goes into the queues, each in its place, unless the tag is paused.
-- One that was stopped or lost says nothing of the code: the tag has none, and its next submit brings another.
-- A script: all that waits comes in at one moment, however much it is.
-- parts: events waiting
-- keys: tag baseline baselines
-- args: tag
-- returns: opened | open | waits | stale
if redis.call('HGET', K.tag, 'awaits_baseline') ~= 'true' then
  redis.call('ZREM', K.baselines, A.tag)
  return 'open'
end
local ended = redis.call('HMGET', K.baseline, 'finished_at', 'status')
if not ended[1] then return 'waits' end
local is_paused = redis.call('HEXISTS', K.tag, 'paused_at') == 1
if not is_paused and not are_all_found() then return 'stale' end
redis.call('HDEL', K.tag, 'awaits_baseline')
if not is_paused then let_in() end
if ended[2] == 'stopped' or ended[2] == 'lost' then redis.call('HDEL', K.tag, 'baseline_id') end
redis.call('ZREM', K.baselines, A.tag)
emit('tag.resumed', A.tag, A.tag, cjson.encode({tag = A.tag, lifted = 'baseline', waiting = redis.call('ZCARD', K.queued)}))
return 'opened'
