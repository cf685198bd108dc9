-- A process opens the lab; the first one makes it.
-- keys: schema identity restoring
-- args: schema identity
-- returns: {schema found, identity} | {restoring}
if redis.call('EXISTS', K.restoring) == 1 then return {'restoring'} end
redis.call('SET', K.identity, A.identity, 'NX')
redis.call('SET', K.schema, A.schema, 'NX')
return {redis.call('GET', K.schema), redis.call('GET', K.identity)}
