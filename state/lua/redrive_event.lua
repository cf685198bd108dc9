-- Take an event out of the dead letters; put it before its binding once more, or leave it at that.
-- KEYS  1 dead letters  2 stream of redriven events of the binding  3 when each binding was last served
-- ARGV  1 dead letter  2 event as JSON, all values text; empty to discard it  3 binding of that stream
-- Returns ok | gone | unbound
if ARGV[2] ~= '' and not redis.call('ZSCORE', KEYS[3], ARGV[3]) then return 'unbound' end
if redis.call('XDEL', KEYS[1], ARGV[1]) == 0 then return 'gone' end
if ARGV[2] ~= '' then
  local e = cjson.decode(ARGV[2])
  redis.call('XADD', KEYS[2], '*', 'type', e.type, 'time', e.time, 'tag', e.tag, 'subject', e.subject, 'data', e.data,
    'trace', e.trace, 'origin', e.origin)
end
return 'ok'
