-- Note the usage limit that an agent of a tag has met; one with the `since` that is noted changes nothing.
-- parts: events
-- keys: tag agent_limits
-- args: tag agent limit told
-- `limit` is the record, `told` the data of the event. A tag has 256 such agents at most.
-- returns: ok | no_tag | known | full
if redis.call('EXISTS', K.tag) == 0 then return 'no_tag' end
local limit, stored = cjson.decode(A.limit), redis.call('HGET', K.agent_limits, A.agent)
if stored then
  local before = cjson.decode(stored)
  if before.since == limit.since or now() - before.noted < 60 then return 'known' end
  limit.times = before.times + 1
elseif redis.call('HLEN', K.agent_limits) >= 256 then
  return 'full'
end
limit.noted = now()
redis.call('HSET', K.agent_limits, A.agent, cjson.encode(limit))
emit('agent.limited', A.tag, A.agent, A.told)
return 'ok'
