-- Register an experiment that its agent trains itself, or has trained later.
-- parts: registration
-- keys: open
-- args: patience_s
-- Returns {ok, number, first experiment with this code or empty, parents} | {stale} | {quota_full, seconds} |
--   {exhausted, patch_bytes, limit, spent, reserved, needed}
local t = now()
if is_stale_entry(t) then return {'stale'} end
local refusal = overflow()
if refusal then return refusal end
local id, number, _, first, parents = register('registered', 0, clock(t))
redis.call('ZADD', K.open, clock(t + tonumber(A.patience_s)), id)
return {'ok', number, first, parents}
