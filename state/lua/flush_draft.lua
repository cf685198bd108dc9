-- Drop the draft of a tag's next program: what it predicts does not hold.
-- parts: events pipeline
-- args: spec_id data
-- Returns ok | stale
if pipeline_is_stale() then return 'stale' end
change_pipeline()
emit('pipeline.flushed', A.tag, A.spec_id, A.data)
return 'ok'
