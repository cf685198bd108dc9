-- Keep what the draft of a tag's next program says: it is ready.
-- parts: events pipeline
-- args: spec_id data text
-- Returns ok | stale
if pipeline_is_stale() then return 'stale' end
change_pipeline(A.text)
emit('pipeline.ready', A.tag, A.spec_id, A.data)
return 'ok'
