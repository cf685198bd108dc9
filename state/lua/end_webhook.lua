-- Owe a receiver nothing any more: forget it, or keep it as disabled for operators to see.
-- KEYS  1 webhooks  2 webhook  3 events  4 bindings  5 its redriven events  6 how its deliveries went
-- ARGV  1 id  2 group  3 its two bindings, apart by a comma  4 why it is disabled; empty to forget it  5 event data
-- Returns ok | gone
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 'gone' end
if ARGV[4] ~= '' and redis.call('HEXISTS', KEYS[2], 'disabled_at') == 1 then return 'gone' end
for binding in string.gmatch(ARGV[3], '[^,]+') do redis.call('ZREM', KEYS[4], binding) end
if redis.call('EXISTS', KEYS[3]) == 1 then redis.call('XGROUP', 'DESTROY', KEYS[3], ARGV[2]) end
redis.call('DEL', KEYS[5])
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[2], 'disabled_at', clock(now()), 'disabled_reason', ARGV[4])
else
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('DEL', KEYS[2])
  redis.call('DEL', KEYS[6])
end
emit(KEYS[3], ARGV[4] ~= '' and 'webhook.disabled' or 'webhook.removed', '', ARGV[1], ARGV[5])
return 'ok'
