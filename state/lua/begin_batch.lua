-- Begin another batch of a tag's results; a draft that is not ready by then is dropped.
-- parts: pipeline
-- Returns ok | stale
if pipeline_is_stale() then return 'stale' end
change_pipeline()
return 'ok'
