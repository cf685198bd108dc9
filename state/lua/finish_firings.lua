-- Acknowledge handled firings; the waiting one comes next.
-- parts: firings
-- args: ids*
-- returns: ok
if #A.ids > 0 then redis.call('XACK', K.firings, A['function'], unpack(A.ids)) end
release(now())
return 'ok'
