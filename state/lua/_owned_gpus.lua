-- How many GPUs each agent has registered for itself, and the bearer of every other token for the lab.
-- keys: agent_gpus worker_gpus

local function owned_gpus(owner, of_agent)
  return tonumber(redis.call('HGET', of_agent and K.agent_gpus or K.worker_gpus, owner) or '0')
end

local function count_gpu(owner, of_agent, by)
  local counts = of_agent and K.agent_gpus or K.worker_gpus
  if redis.call('HINCRBY', counts, owner, by) < 1 then redis.call('HDEL', counts, owner) end
end
