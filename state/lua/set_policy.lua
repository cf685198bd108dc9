-- Replace a tag's policy, if it still is the version that was read. A new mode of its traces begins an epoch: what was
-- selected before is recorded, and never a parent; the lease of a selection that nothing was registered with ends. The tag's own line grows in single mode only: where that ends, it
-- stands among the others, with all that the tag has, if there is room.
-- KEYS  1 policy  2 forest  3 the tag's own line  4 traces  5 live traces  6 finish order  7 best  8 events  9 open selections
-- ARGV  1 expected version  2 policy as JSON text  3 tag  4 mode of its traces before  5 mode after  6 most traces after
--       7 the tag's own line  8 true where an epoch begins in any case
-- Returns the new version | stale
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[1] then return 'stale' end
redis.call('HSET', KEYS[1], 'values', ARGV[2])
if ARGV[4] ~= ARGV[5] or ARGV[8] == 'true' then
  redis.call('HSET', KEYS[2], 'epoch', (redis.call('HGET', KEYS[2], 'epoch') or '1') + 1)
  for _, selection in ipairs(redis.call('ZRANGEBYSCORE', KEYS[9], '-inf', '(+inf')) do
    redis.call('ZADD', KEYS[9], clock(now()), selection)
  end
end
if ARGV[4] == 'multi' and ARGV[5] == 'single' then
  redis.call('HSET', KEYS[2], 'single_since', redis.call('ZCARD', KEYS[6]))
  redis.call('ZREM', KEYS[5], ARGV[7])
elseif ARGV[4] == 'single' and ARGV[5] == 'multi' then
  local t = now()
  local _, nth = newest_of(KEYS[2], KEYS[6])
  local grew = nth > tonumber(redis.call('HGET', KEYS[2], 'single_since') or '0')
  if grew then follow(KEYS[3], KEYS[4], KEYS[2], KEYS[6], KEYS[7], ARGV[3], ARGV[7], t) end
  if redis.call('HGET', KEYS[3], 'status') == 'live' then
    if redis.call('ZCARD', KEYS[5]) < tonumber(ARGV[6]) then
      redis.call('ZADD', KEYS[5], 0, ARGV[7])
    else
      end_trace(KEYS[3], KEYS[5], KEYS[8], ARGV[3], 'closed', 'the tag has as many traces as it may have', t)
    end
  end
end
return tostring(redis.call('HINCRBY', KEYS[1], 'version', 1))
