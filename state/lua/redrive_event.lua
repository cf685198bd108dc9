-- Take an event out of the dead letters; put it before its binding once more, or leave it at that.
-- KEYS  1 dead letters  2 stream of redriven events of the binding
-- ARGV  1 dead letter  2 event as JSON, all values text; empty to discard it
-- Returns ok | gone
if redis.call('XDEL', KEYS[1], ARGV[1]) == 0 then return 'gone' end
if ARGV[2] ~= '' then
  local e = cjson.decode(ARGV[2])
  redis.call('XADD', KEYS[2], '*', 'type', e.type, 'time', e.time, 'tag', e.tag, 'subject', e.subject, 'data', e.data,
    'trace', e.trace)
end
return 'ok'
