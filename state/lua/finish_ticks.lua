-- Acknowledge handled ticks; one that waited for them comes next.
-- parts: ticks
-- args: ids*
-- returns: ok
if #A.ids > 0 then redis.call('XACK', K.ticks, A['function'], unpack(A.ids)) end
release(now())
return 'ok'
