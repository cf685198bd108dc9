-- A step of a tag's pipeline, taken only if nothing has changed since it was decided.
-- keys: pipeline
-- args: tag version fields
-- `fields` are all fields of the pipeline but the draft's text, as JSON of texts.

local function pipeline_is_stale()
  return (redis.call('HGET', K.pipeline, 'version') or '0') ~= A.version
end

-- Keep the step; the draft's text goes with it, or another one comes.
local function change_pipeline(text)
  redis.call('DEL', K.pipeline)
  put(K.pipeline, A.fields)
  if text then redis.call('HSET', K.pipeline, 'text', text) end
end
