-- Set or clear flags of a GPU; its status follows from them.
-- parts: gpu
-- keys: gpu
-- args: gpu_id flags* cleared* reason fence? heartbeat_at? tripped_until? keeper? unset?
-- Guards: those of fence, heartbeat_at, tripped_until and keeper that are given; `unset`: a flag that must not be set yet.
-- returns: {ok, status, holder or empty} | {unknown} | {stale}
if redis.call('EXISTS', K.gpu) == 0 then return {'unknown'} end
for _, field in ipairs({'fence', 'heartbeat_at', 'tripped_until'}) do
  if A[field] and tonumber(redis.call('HGET', K.gpu, field) or '-1') ~= tonumber(A[field]) then return {'stale'} end
end
if A.keeper and (redis.call('HGET', K.gpu, 'keeper') or A.keeper) ~= A.keeper then return {'stale'} end
if A.unset and redis.call('HEXISTS', K.gpu, A.unset) == 1 then return {'stale'} end
if #A.flags > 0 then redis.call('HSET', K.gpu, unpack(A.flags)) end
if #A.cleared > 0 then redis.call('HDEL', K.gpu, unpack(A.cleared)) end
local status = derive_status(K.gpu, A.gpu_id, now(), A.reason)
return {'ok', status, redis.call('HGET', K.gpu, 'holder') or ''}
