-- Give a tag of schema 1 its books, and its waiting and running experiments what is set aside for them.
-- KEYS  1 migration  2 tag  3... experiments
-- ARGV  1 token  2 reserved GPU seconds  3 reserved runs  4 spent GPU seconds  5 spent runs
--       6... seconds per experiment, empty for none
-- Returns ok | lost (another process has taken the migration over)
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'lost' end
redis.call('HSET', KEYS[2], 'reserved_gpu_seconds', ARGV[2], 'reserved_runs', ARGV[3], 'spent_gpu_seconds', ARGV[4],
  'spent_runs', ARGV[5])
for i = 3, #KEYS do
  local at = i + 3
  if ARGV[at] == '' then
    redis.call('HDEL', KEYS[i], 'reserved_gpu_seconds')
  else
    redis.call('HSET', KEYS[i], 'reserved_gpu_seconds', ARGV[at])
  end
end
return 'ok'
