-- Give a selection back that nothing was registered with: released by its holder, or expired by Redis' clock.
-- parts: selection
-- keys: selection trace open_selections traces
-- args: id status why
-- returns: {ok} | {over, status, its experiment} | {registered, its experiment} | {early}, its lease goes on
local s = redis.call('HMGET', K.selection, 'status', 'experiment_id')
if s[1] ~= 'open' then
  redis.call('ZREM', K.open_selections, A.id)
  return {'over', s[1] or '', s[2] or ''}
end
if s[2] then
  redis.call('ZADD', K.open_selections, '+inf', A.id)
  return {'registered', s[2]}
end
local t = now()
if A.status == 'expired' and tonumber(redis.call('ZSCORE', K.open_selections, A.id)) > t then return {'early'} end
close_selection(A.status, A.why, t)
return {'ok'}
