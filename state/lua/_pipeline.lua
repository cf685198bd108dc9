-- A step of a tag's pipeline, taken only if nothing has changed since it was decided.
-- keys: pipeline
-- args: tag version fields
-- `fields` are all fields of the pipeline but the two texts, as JSON of texts.

local function pipeline_is_stale()
  return (redis.call('HGET', K.pipeline, 'version') or '0') ~= A.version
end

-- Keep the step; the draft's text goes with it, or another one comes. The text of the draft that was confirmed last
-- stays until another one is confirmed: it may not be adopted yet.
local function change_pipeline(text, confirmed_text)
  confirmed_text = confirmed_text or redis.call('HGET', K.pipeline, 'confirmed_text')
  redis.call('DEL', K.pipeline)
  put(K.pipeline, A.fields)
  if text then redis.call('HSET', K.pipeline, 'text', text) end
  if confirmed_text then redis.call('HSET', K.pipeline, 'confirmed_text', confirmed_text) end
end
