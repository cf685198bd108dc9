-- Confirm the draft of a tag's next program: its batch has decided what it predicts.
-- parts: events pipeline
-- args: spec_id data
-- Returns ok | stale
if pipeline_is_stale() then return 'stale' end
change_pipeline(redis.call('HGET', K.pipeline, 'text') or nil)
emit('pipeline.confirmed', A.tag, A.spec_id, A.data)
return 'ok'
