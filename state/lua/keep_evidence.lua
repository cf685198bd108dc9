-- Keep a result that came too late to count, unless there are enough of them.
-- keys: evidence
-- args: digest result most
-- returns: kept | known | full
if redis.call('HEXISTS', K.evidence, A.digest) == 1 then return 'known' end
if redis.call('HLEN', K.evidence) >= tonumber(A.most) then return 'full' end
redis.call('HSET', K.evidence, A.digest, A.result)
return 'kept'
