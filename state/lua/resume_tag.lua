-- Forget the crashes in a row of a tag.
-- parts: events
-- keys: tag crashes
-- args: tag
-- Returns crashes in a row before | no_tag
if redis.call('EXISTS', K.tag) == 0 then return 'no_tag' end
local before = redis.call('HGET', K.crashes, 'consecutive') or '0'
if before ~= '0' then
  redis.call('HSET', K.crashes, 'consecutive', 0)
  emit('tag.resumed', A.tag, A.tag, cjson.encode({tag = A.tag, lifted = 'crashes', crashes = tonumber(before)}))
end
return before
