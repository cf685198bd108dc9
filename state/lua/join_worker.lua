-- A machine joins a tag's swarm: its record, its number and its token.
-- parts: token
-- keys: token enroll_token? swarm_worker swarms swarm_members swarm_seen joining
-- args: tag id name role kind fields lasts_s? event_data worker_fields* joined joins_per_s? joins_burst?
-- `joined` is data of an event. `joining` is the moment at which the bucket of registrations is empty (generic cell rate
-- algorithm, ITU-T I.371); without `joins_per_s` there is no limit.
-- returns: ok | taken | ended | {wait, seconds}
local t, empty = now(), nil
if A.joins_per_s then
  empty = math.max(tonumber(redis.call('GET', K.joining) or '0'), t) + 1 / A.joins_per_s
  local wait = empty - t - A.joins_burst / A.joins_per_s
  if wait > 1e-6 then return {'wait', string.format('%.3f', wait)} end
end
local refusal = issue_token(t, K.token, {
  id = A.id, name = A.name, role = A.role, kind = A.kind, fields = A.fields, lasts_s = A.lasts_s,
  event_data = A.event_data, is_new = true,
}, K.enroll_token)
if refusal then return refusal end
if empty then redis.call('SET', K.joining, clock(empty), 'PX', math.ceil((empty - t) * 1000)) end
local at, number = clock(t), redis.call('ZCARD', K.swarm_members) + 1
redis.call('HSET', K.swarm_worker, 'number', number, 'joined_at', at, unpack(A.worker_fields))
redis.call('ZADD', K.swarms, 'NX', at, A.tag)
redis.call('ZADD', K.swarm_members, number, A.name)
redis.call('ZADD', K.swarm_seen, at, A.name)
emit('worker.joined', A.tag, A.name, A.joined)
return 'ok'
