-- What was decided of experiments, where no worker can write: see `state/decided.py`.
-- keys: decided
-- args: code? constants? limits?

local function keep(id, code, constants, limits)
  if code then redis.call('HSET', K.decided, id, code) end
  if constants then redis.call('HSET', K.decided, id .. ':constants', constants) end
  if limits then redis.call('HSET', K.decided, id .. ':limits', limits) end
end

-- What was decided of it, as `state/decided.py:fields_for` names it.
local function decided_of(id)
  return redis.call('HMGET', K.decided, 'tag', id, id .. ':constants', id .. ':limits')
end

-- Keep of a retest what was decided of the experiment that it repeats, with a seed of its own.
local function keep_retest(id, first, seed)
  local code = redis.call('HGET', K.decided, first)
  if not code then return end
  local decided = cjson.decode(code)
  decided.seed, decided.is_retest = tonumber(seed), true
  keep(id, cjson.encode(decided), redis.call('HGET', K.decided, first .. ':constants'), A.limits)
end
