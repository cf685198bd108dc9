-- Tell everybody that an audit found something.
-- KEYS  1 events
-- ARGV  1 event data
emit(KEYS[1], 'lab.audit_failed', '', 'lab', ARGV[1])
return 'ok'
