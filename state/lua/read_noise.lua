-- The noise of a tag's main class of GPU. Writes nothing.
-- A script: the tag names the key, in one round trip.
-- keys: tag
-- args: tag noise no_class
-- returns: {squares, df}
-- `noise` is what the keys of the tag's noise begin with, `no_class` how that goes on while the tag has no class.
local class = redis.call('HGET', K.tag, 'key_noise') or A.no_class
return redis.call('HMGET', A.noise .. class, 'squares', 'df')
