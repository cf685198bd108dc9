-- A worker of a swarm comes back with another baseline, GPU or contact: it gets another token.
-- parts: rotation
-- keys: token swarm_worker swarm_seen
-- args: tag worker_id digest new_digest stays overlap_s bearer? event_data worker_fields* joined
-- returns: ok | stale | rotated_out
local t = now()
local refusal = rotate_token(t, K.token, {
  digest = A.digest, new_digest = A.new_digest, stays = A.stays, overlap_s = A.overlap_s, bearer = A.bearer,
  event_data = A.event_data,
})
if refusal then return refusal end
redis.call('HSET', K.swarm_worker, unpack(A.worker_fields))
redis.call('ZADD', K.swarm_seen, clock(t), A.worker_id)
emit('worker.joined', A.tag, A.worker_id, A.joined)
return 'ok'
