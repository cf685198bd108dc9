-- A process says that it serves a consumer group: the group is there, and stays as long as somebody says so.
-- KEYS  1 stream  2 when each binding was last served  3 webhooks
-- ARGV  1 group  2 binding  3 webhook that the group lives with; empty where it lives by itself
-- Returns ok | gone
if ARGV[3] ~= '' then
  if not redis.call('ZSCORE', KEYS[3], ARGV[3]) then return 'gone' end
else
  local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
  if type(made) == 'table' and made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
end
redis.call('ZADD', KEYS[2], clock(now()), ARGV[2])
return 'ok'
