-- Forget the crashes in a row of a tag.
-- KEYS  1 tag  2 crashes  3 events
-- ARGV  1 tag
-- Returns crashes in a row before | no_tag
if redis.call('EXISTS', KEYS[1]) == 0 then return 'no_tag' end
local before = redis.call('HGET', KEYS[2], 'consecutive') or '0'
if before ~= '0' then
  redis.call('HSET', KEYS[2], 'consecutive', 0)
  emit(KEYS[3], 'tag.resumed', ARGV[1], ARGV[1], 
    cjson.encode({tag = ARGV[1], lifted = 'crashes', crashes = tonumber(before)}))
end
return before
