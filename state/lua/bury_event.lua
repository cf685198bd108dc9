-- Move an event that failed too often to the dead letters of its binding. A script: no guard watches a group's entries.
-- parts: events
-- keys: stream dead_letters
-- args: group entry error deliveries event
-- returns: ok | gone
if redis.call('XACK', K.stream, A.group, A.entry) == 0 then return 'gone' end
redis.call('XADD', K.dead_letters, '*', 'binding', A.group, 'entry', A.entry, 'error', A.error, 'deliveries', A.deliveries, 'event',
  A.event, 'time', rfc3339(now()))
return 'ok'
