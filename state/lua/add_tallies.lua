-- Add what a process counted to the lab's sums. Presence, not state.
-- KEYS  1 tallies
-- ARGV  pairs of name and amount
for i = 1, #ARGV, 2 do
  redis.call('HINCRBYFLOAT', KEYS[1], ARGV[i], ARGV[i + 1])
end
return 'ok'
