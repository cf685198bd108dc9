-- Register a receiver of events; it is owed everything that happens from now on.
-- KEYS  1 webhooks  2 webhook  3 events  4 bindings  5 its redriven events
-- ARGV  1 id  2 fields as JSON  3 group  4 its two bindings, apart by a comma  5 most webhooks  6 event data
-- Returns ok | full
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[5]) then return 'full' end
local t = clock(now())
emit(KEYS[3], 'webhook.added', '', ARGV[1], ARGV[6])
redis.call('XGROUP', 'CREATE', KEYS[3], ARGV[3], '$')
redis.call('XGROUP', 'CREATE', KEYS[5], ARGV[3], '0', 'MKSTREAM')
for binding in string.gmatch(ARGV[4], '[^,]+') do redis.call('ZADD', KEYS[4], t, binding) end
put(KEYS[2], ARGV[2])
redis.call('HSET', KEYS[2], 'created_at', t)
redis.call('ZADD', KEYS[1], t, ARGV[1])
return 'ok'
