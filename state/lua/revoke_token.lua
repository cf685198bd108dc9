-- End a token for good; an operator may give its name again.
-- KEYS  1 token  2 token ids by name  3 events
-- ARGV  1 id  2 name  3 event data
-- Returns ok | before
if redis.call('HEXISTS', KEYS[1], 'revoked_at') == 1 then return 'before' end
redis.call('HSET', KEYS[1], 'revoked_at', clock(now()))
redis.call('HDEL', KEYS[1], 'old_digest', 'old_until')
if redis.call('HGET', KEYS[2], ARGV[2]) == ARGV[1] then redis.call('HSET', KEYS[2], ARGV[2], '-' .. ARGV[1]) end
emit(KEYS[3], 'token.revoked', '', ARGV[2], ARGV[3])
return 'ok'
