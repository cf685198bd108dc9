-- Tell that an audit found something.
-- parts: events
-- args: event_data
-- returns: ok
emit('lab.audit_failed', '', 'lab', A.event_data)
return 'ok'
