-- Confirm the draft of a tag's next program: its batch has decided what it predicts. Its text is kept twice: as the
-- draft's, until the next one begins, and apart, to be adopted however late.
-- parts: events pipeline
-- args: spec_id data
-- Returns ok | stale
if pipeline_is_stale() then return 'stale' end
local text = redis.call('HGET', K.pipeline, 'text')
change_pipeline(text, text)
emit('pipeline.confirmed', A.tag, A.spec_id, A.data)
return 'ok'
