-- How many GPUs each agent has registered for itself.
-- keys: agent_gpus

local function agent_gpus(agent)
  return tonumber(redis.call('HGET', K.agent_gpus, agent) or '0')
end

local function count_agent_gpu(agent, by)
  if redis.call('HINCRBY', K.agent_gpus, agent, by) < 1 then redis.call('HDEL', K.agent_gpus, agent) end
end
