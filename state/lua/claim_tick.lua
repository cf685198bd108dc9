-- One of several clocks gets to fire a tick.
-- KEYS  1 the trigger's last tick  2 its stream of ticks
-- ARGV  1 scheduled time  2 trigger
-- Returns fired | taken | early
local t = now()
if tonumber(ARGV[1]) > t + 2 then return 'early' end
local last = tonumber(redis.call('HGET', KEYS[1], 'scheduled') or '-1')
-- A last tick that lies ahead was fired before Redis' clock was set back.
if last >= tonumber(ARGV[1]) and last <= t + 2 then return 'taken' end
redis.call('HSET', KEYS[1], 'scheduled', ARGV[1], 'fired_at', clock(t))
redis.call('XADD', KEYS[2], 'MAXLEN', '~', '1000', '*', 'type', 'cron.tick', 'time', rfc3339(t), 'tag', '', 'subject',
  ARGV[2], 'data', '{"scheduled":' .. ARGV[1] .. '}', 'trace', '')
return 'fired'
