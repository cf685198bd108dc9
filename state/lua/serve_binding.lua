-- A process says that it serves a consumer group: the group is there, and stays as long as somebody says so.
-- KEYS  1 stream  2 when each binding was last served
-- ARGV  1 group  2 binding  3 made: the group was made with its webhook, and goes with it
-- Returns ok | gone
if ARGV[3] == 'made' then
  if not redis.call('ZSCORE', KEYS[2], ARGV[2]) then return 'gone' end
else
  local created = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
  if type(created) == 'table' and created.err and not string.find(created.err, 'BUSYGROUP', 1, true) then
    return created
  end
end
-- Hours in which nobody served anything count for no group: the lab was off.
local t = now()
local newest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
if newest[2] and t - tonumber(newest[2]) > 600 then
  local silence = clock(t - tonumber(newest[2]))
  for _, binding in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    redis.call('ZINCRBY', KEYS[2], silence, binding)
  end
end
redis.call('ZADD', KEYS[2], clock(t), ARGV[2])
return 'ok'
