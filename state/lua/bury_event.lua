-- Move an event that failed too often to the dead letters of its binding.
-- KEYS  1 stream  2 dead letters
-- ARGV  1 group  2 entry id  3 error  4 deliveries  5 event as JSON
-- Returns ok | gone
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 'gone' end
redis.call('XADD', KEYS[2], '*', 'binding', ARGV[1], 'entry', ARGV[2], 'error', ARGV[3], 'deliveries', ARGV[4], 'event',
  ARGV[5], 'time', rfc3339(now()))
return 'ok'
