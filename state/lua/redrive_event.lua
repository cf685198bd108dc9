-- Take an event out of the dead letters; put it before its binding once more, or (without `event`) discard it.
-- keys: dead_letters redriven bindings
-- args: letter event? binding
-- returns: ok | gone | unbound
if A.event and not redis.call('ZSCORE', K.bindings, A.binding) then return 'unbound' end
if redis.call('XDEL', K.dead_letters, A.letter) == 0 then return 'gone' end
if A.event then
  local e = cjson.decode(A.event)
  redis.call('XADD', K.redriven, '*', 'type', e.type, 'time', e.time, 'tag', e.tag, 'subject', e.subject, 'data', e.data,
    'trace', e.trace, 'origin', e.origin)
end
return 'ok'
