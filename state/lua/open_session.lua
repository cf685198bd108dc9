-- Open a browser's session; where its token has more than `most`, its oldest one ends.
-- keys: session sessions
-- args: kept lasts_s most
redis.call('SET', K.session, A.kept, 'EX', A.lasts_s)
redis.call('RPUSH', K.sessions, K.session)
redis.call('EXPIRE', K.sessions, A.lasts_s)
local open = {}
for _, session in ipairs(redis.call('LRANGE', K.sessions, 0, -1)) do
  if redis.call('EXISTS', session) == 1 then open[#open + 1] = session else redis.call('LREM', K.sessions, 1, session) end
end
for nth = 1, #open - tonumber(A.most) do
  redis.call('DEL', open[nth])
  redis.call('LREM', K.sessions, 1, open[nth])
end
return 'ok'
