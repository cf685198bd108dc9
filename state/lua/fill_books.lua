-- Give a tag of schema 1 its books, and its waiting and running experiments what is set aside for them.
-- keys: migration tag experiments*
-- args: token reserved_gpu_seconds reserved_runs spent_gpu_seconds spent_runs held*
-- `held`: seconds set aside for each experiment, empty for none.
-- returns: ok | lost (another process has taken the migration over)
if redis.call('HGET', K.migration, 'token') ~= A.token then return 'lost' end
redis.call('HSET', K.tag, 'reserved_gpu_seconds', A.reserved_gpu_seconds, 'reserved_runs', A.reserved_runs,
  'spent_gpu_seconds', A.spent_gpu_seconds, 'spent_runs', A.spent_runs)
for i, experiment in ipairs(K.experiments) do
  if A.held[i] == '' then
    redis.call('HDEL', experiment, 'reserved_gpu_seconds')
  else
    redis.call('HSET', experiment, 'reserved_gpu_seconds', A.held[i])
  end
end
return 'ok'
