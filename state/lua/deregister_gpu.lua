-- Forget a GPU that no experiment holds. With `agent`: only if this agent registered it for itself; with `owner`: only
-- if that registered it; with `heartbeat_at`: only if nothing was heard of it since; with `keeper`: only if no other one
-- serves it.
-- parts: events owned_gpus
-- keys: gpu gpus idle_gpus gpu_history
-- args: gpu_id reason agent? owner? heartbeat_at? keeper?
-- returns: ok | unknown | held | other
local g = redis.call('HMGET', K.gpu, 'status', 'holder', 'owner', 'of_agent', 'heartbeat_at', 'keeper')
if not g[1] then return 'unknown' end
if A.agent and not (g[4] and g[3] == A.agent) then return 'other' end
if A.owner and g[3] ~= A.owner then return 'other' end
if A.heartbeat_at and tonumber(g[5]) ~= tonumber(A.heartbeat_at) then return 'other' end
if A.keeper and (g[6] or A.keeper) ~= A.keeper then return 'other' end
if g[2] then return 'held' end
redis.call('DEL', K.gpu, K.gpu_history)
redis.call('ZREM', K.gpus, A.gpu_id)
redis.call('ZREM', K.idle_gpus, A.gpu_id)
if g[3] then count_gpu(g[3], g[4], -1) end
emit('gpu.offline', '', A.gpu_id, cjson.encode({gpu_id = A.gpu_id, reason = A.reason}))
return 'ok'
