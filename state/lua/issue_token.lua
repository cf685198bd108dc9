-- Issue a token, or make one of an enroll token for one of its uses. The name is its bearer's: an operator may give a
-- name again once its token was revoked, an enroll token never.
-- KEYS  1 tokens by creation  2 token  3 token ids by name, with - in front once revoked  4 events  5 enroll token
-- ARGV  1 id  2 name  3 fields as JSON  4 seconds until it ends, or ''  5 role  6 kind  7 issue | enroll  8 event data
-- Returns ok | taken | first | ended
local t = now()
local enrolling = ARGV[7] == 'enroll'
if enrolling then
  local e = redis.call('HMGET', KEYS[5], 'kind', 'revoked_at', 'expires_at', 'uses_left')
  local over = e[3] and t >= tonumber(e[3]) or e[4] and tonumber(e[4]) < 1
  if e[1] ~= 'enroll' or e[2] or over then return 'ended' end
elseif redis.call('EXISTS', KEYS[1]) == 0 and not (ARGV[5] == 'operator' and ARGV[6] == 'access') then
  return 'first'
end
local before = redis.call('HGET', KEYS[3], ARGV[2])
if before and (enrolling or string.sub(before, 1, 1) ~= '-') then return 'taken' end
if enrolling and redis.call('HEXISTS', KEYS[5], 'uses_left') == 1 then redis.call('HINCRBY', KEYS[5], 'uses_left', -1) end
put(KEYS[2], ARGV[3])
redis.call('HSET', KEYS[2], 'created_at', clock(t))
if ARGV[4] ~= '' then redis.call('HSET', KEYS[2], 'expires_at', clock(t + tonumber(ARGV[4]))) end
redis.call('ZADD', KEYS[1], clock(t), ARGV[1])
redis.call('HSET', KEYS[3], ARGV[2], ARGV[1])
emit(KEYS[4], 'token.issued', '', ARGV[2], ARGV[8])
return 'ok'
