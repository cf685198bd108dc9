-- Note a token's request, unless it sends too many: the generic cell rate algorithm (ITU-T I.371), which keeps one
-- moment for each token, that at which its bucket would be empty.
-- KEYS  1 that moment  2 use of tokens: when each was used last, and which present secrets have been used  3 token
-- ARGV  1 token  2 seconds between two requests in the long run  3 how many may come at once  4 digest of the secret used
-- Returns seconds to wait; 0 where the request may pass
local t, interval = now(), tonumber(ARGV[2])
local before, most = tonumber(redis.call('GET', KEYS[1]) or '0'), t + interval * tonumber(ARGV[3])
if before > most then  -- the clock was set back: nobody waits for as long as that
  before = most
  redis.call('SET', KEYS[1], clock(most), 'KEEPTTL')
end
local full = math.max(before, t) + interval
local early = full - most
if early > 1e-6 then return string.format('%.6f', early) end
redis.call('SET', KEYS[1], clock(full), 'PX', math.ceil((full - t) * 1000) + 1000)
redis.call('HSET', KEYS[2], ARGV[1], clock(t))
if redis.call('HGET', KEYS[3], 'digest') == ARGV[4] then redis.call('HSET', KEYS[2], ARGV[1] .. ':digest', ARGV[4]) end
return '0'
