-- The tag's baseline has ended: what waited for it goes into the queues, each in its place, unless the tag is paused.
-- parts: events waiting
-- keys: tag baseline baselines
-- args: tag
-- returns: opened | open | waits | stale
if redis.call('HGET', K.tag, 'awaits_baseline') ~= 'true' then
  redis.call('ZREM', K.baselines, A.tag)
  return 'open'
end
if redis.call('HEXISTS', K.baseline, 'finished_at') == 0 then return 'waits' end
redis.call('HDEL', K.tag, 'awaits_baseline')
if redis.call('HEXISTS', K.tag, 'paused_at') == 0 and not let_in() then
  redis.call('HSET', K.tag, 'awaits_baseline', 'true')
  return 'stale'
end
redis.call('ZREM', K.baselines, A.tag)
emit('tag.resumed', A.tag, A.tag, cjson.encode({tag = A.tag, lifted = 'baseline', waiting = redis.call('ZCARD', K.queued)}))
return 'opened'
