-- One of several clocks decides the ticks up to a time: which are fired, and how many were missed.
-- KEYS  1 schedule  2 its ticks
-- ARGV  1 function  2 the trigger in words  3 until when ticks were decided before, or empty  4 until when they are now
--       5 missed ticks  6 overlap policy  7 scheduled times to fire, in order, apart by spaces  8 until when this
--       decision holds
-- Returns claimed | taken | paused | early | late
local t = now()
if redis.call('HEXISTS', KEYS[1], 'paused_at') == 1 then return 'paused' end
if tonumber(ARGV[4]) > t then return 'early' end
if t > tonumber(ARGV[8]) then return 'late' end
if tonumber(redis.call('HGET', KEYS[1], 'until') or '') ~= tonumber(ARGV[3]) then return 'taken' end
redis.call('HSET', KEYS[1], 'until', ARGV[4], 'text', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'missed', ARGV[5])
local untold = tonumber(redis.call('HGET', KEYS[1], 'untold') or '0') + tonumber(ARGV[5])
for scheduled in string.gmatch(ARGV[7], '%S+') do
  local became = fire_unless_overlapping(KEYS[1], KEYS[2], ARGV[1], t, ARGV[6], scheduled, untold, 'false')
  if became == 'overlaps' then redis.call('HINCRBY', KEYS[1], 'skipped', 1) else untold = 0 end
end
redis.call('HSET', KEYS[1], 'untold', untold)
return 'claimed'
