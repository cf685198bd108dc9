-- Take what stands of a tag and its open experiments for decided, where nothing was kept of the tag yet.
-- keys: decided
-- args: tag of_tag fields*
-- returns: ok | decided
if redis.call('HSETNX', K.decided, 'tag', A.of_tag) == 0 then return 'decided' end
redis.call('HSET', K.decided, 'adopted', 'true')
for i = 1, #A.fields, 2 do redis.call('HSETNX', K.decided, A.fields[i], A.fields[i + 1]) end
return 'ok'
