-- Open a restored lab to its processes, as a lab of its own: attempts and fences of its earlier life mean nothing.
-- keys: restoring identity fence
-- args: token identity fence_leap
-- returns: ok | lost (another restore goes on)
if redis.call('HGET', K.restoring, 'token') ~= A.token then return 'lost' end
redis.call('SET', K.identity, A.identity)
redis.call('INCRBY', K.fence, A.fence_leap)
redis.call('DEL', K.restoring)
return 'ok'
