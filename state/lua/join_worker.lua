-- A machine joins a tag's swarm: its record, its number and its token.
-- parts: token
-- keys: token enroll_token? swarm_worker swarms swarm_members swarm_seen
-- args: tag id name role kind fields lasts_s? event_data worker_fields* joined
-- `joined` is data of an event.
-- returns: ok | taken | ended
local t = now()
local refusal = issue_token(t, K.token, {
  id = A.id, name = A.name, role = A.role, kind = A.kind, fields = A.fields, lasts_s = A.lasts_s,
  event_data = A.event_data, is_new = true,
}, K.enroll_token)
if refusal then return refusal end
local at, number = clock(t), redis.call('ZCARD', K.swarm_members) + 1
redis.call('HSET', K.swarm_worker, 'number', number, 'joined_at', at, unpack(A.worker_fields))
redis.call('ZADD', K.swarms, 'NX', at, A.tag)
redis.call('ZADD', K.swarm_members, number, A.name)
redis.call('ZADD', K.swarm_seen, at, A.name)
emit('worker.joined', A.tag, A.name, A.joined)
return 'ok'
