-- Acknowledge handled ticks; one that waited for them comes next.
-- KEYS  1 schedule  2 its ticks
-- ARGV  1 function  2 ids, apart by spaces; may be empty
-- Returns ok
for id in string.gmatch(ARGV[2], '%S+') do redis.call('XACK', KEYS[2], ARGV[1], id) end
release(KEYS[1], KEYS[2], ARGV[1], now())
return 'ok'
