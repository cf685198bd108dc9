-- One of several clocks decides the firings up to a time: whether the newest comes now, and how many were missed.
-- parts: firings
-- args: text before? until missed overlap fire? holds_until
-- `before`: until when firings were decided; `fire`: a scheduled time; `holds_until`: the decision is late then.
-- returns: claimed | taken | paused | early | late
local t = now()
if redis.call('HEXISTS', K.schedule, 'paused_at') == 1 then return 'paused' end
if tonumber(A['until']) > t then return 'early' end
if t > tonumber(A.holds_until) then return 'late' end
if tonumber(redis.call('HGET', K.schedule, 'until') or '') ~= tonumber(A.before or '') then return 'taken' end
redis.call('HSET', K.schedule, 'until', A['until'], 'text', A.text)
redis.call('HINCRBY', K.schedule, 'missed', A.missed)
local untold = tonumber(redis.call('HGET', K.schedule, 'untold') or '0') + tonumber(A.missed)
if A.fire then
  local became = fire_unless_overlapping(t, A.overlap, A.fire, untold, 'false')
  if became == 'overlaps' then redis.call('HINCRBY', K.schedule, 'skipped', 1) else untold = 0 end
end
redis.call('HSET', K.schedule, 'untold', untold)
return 'claimed'
