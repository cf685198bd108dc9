-- Put a paused tag's experiments back into the queues, each in its old place; those that wait for the baseline stay aside.
-- A script: all that waits comes back at one moment, however much it is.
-- parts: events waiting
-- keys: tag paused queued queues* asides*
-- args: tag
-- returns: {no_tag | stale} | {resumed | already, number of waiting experiments}
-- stale: an experiment is parked where it was not looked for.
if redis.call('EXISTS', K.tag) == 0 then return {'no_tag'} end
local waiting = redis.call('ZCARD', K.queued)
if redis.call('HEXISTS', K.tag, 'paused_at') == 0 then return {'already', waiting} end
if not are_all_found() then return {'stale'} end
let_in()
local reason = redis.call('HGET', K.tag, 'pause_reason')
redis.call('HDEL', K.tag, 'paused_at', 'pause_reason')
redis.call('ZREM', K.paused, A.tag)
emit('tag.resumed', A.tag, A.tag, cjson.encode({tag = A.tag, lifted = 'pause', reason = reason or nil, waiting = waiting}))
return {'resumed', waiting}
