-- Walk up the graph of a tag's experiments. Writes nothing, and reads a bounded number of experiments.
-- parts: rows
-- keys: starts*
-- args: experiments most base?
-- returns: {whole or cut, {field, value, ...}, ...}: the starts and what they were made from, level by level,
--   without their constants and metrics
--   with base, the kept experiment nearest to the first start: {found, {field, value, ...}} | {none} | {on, next start}
local function base_above(key)
  for _ = 1, tonumber(A.most) do
    local e = redis.call('HMGET', key, 'experiment_id', 'status', 'selection', 'parent_ids')
    if not e[1] then return {'none'} end
    if e[2] == 'keep' then return {'found', redis.call('HGETALL', key)} end
    local above = e[3] and cjson.decode(e[3]).base_experiment_id
    if not e[3] then above = cjson.decode(e[4] or '[]')[1] end
    if not above or above == cjson.null then return {'none'} end
    key = A.experiments .. above
  end
  return {'on', key}
end

local function ancestors(level)
  local found, seen = {'whole'}, {}
  while #level > 0 do
    if #found > tonumber(A.most) then
      found[1] = 'cut'
      break
    end
    local above = {}
    for _, key in ipairs(level) do
      local e = not seen[key] and brief(key) or {}
      seen[key] = true
      if #e > 0 then
        found[#found + 1] = e
        for _, parent in ipairs(cjson.decode(redis.call('HGET', key, 'parent_ids') or '[]')) do
          above[#above + 1] = A.experiments .. parent
        end
      end
    end
    level = {}
    for _, key in ipairs(above) do
      if not seen[key] then level[#level + 1] = key end
    end
  end
  return found
end

return A.base and base_above(K.starts[1]) or ancestors(K.starts)
