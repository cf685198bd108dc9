-- A process opens the lab; the first one makes it.
-- keys: layout schema identity restoring
-- args: layout identity
-- returns: {layout found, identity} | {restoring, nothing}. Layout 0: version 0.1 wrote the lab, which has the key `schema`.
if redis.call('EXISTS', K.restoring) == 1 then return {'restoring', ''} end
if redis.call('EXISTS', K.schema) == 1 then return {'0', ''} end
redis.call('SET', K.identity, A.identity, 'NX')
redis.call('SET', K.layout, A.layout, 'NX')
return {redis.call('GET', K.layout), redis.call('GET', K.identity)}
