-- Change what a tag believes by one run that has ended; a run counts once.
-- parts: events beliefs
-- keys: experiment hypotheses archived_hypotheses hypothesis_evidence unpaired used_references part_sums references reprieved
-- args: tag ids* texts* evidence* unpaired* used* blocks* archived* reference? most bands* sums* believed* believed_data*
-- args: settled* settled_data* is_reference? checkpoint_every batch_every?
-- `ids`, `texts` and what follows up to `blocks` are of the hypotheses that it changes; `archived` are those of them that are
-- open no more. At most `most` reference runs are kept. `believed` have another status, `settled` a verdict. The journal is due
-- after every `checkpoint_every` results, the pipeline has a batch after every `batch_every`; with `is_reference` the run was handed out as a reference run.
-- Returns ok | learned | stale
if redis.call('HEXISTS', K.experiment, 'learned_at') == 1 then return 'learned' end
if beliefs_are_stale() then return 'stale' end

local function keep(key, id, text)
  if text == '' then redis.call('HDEL', key, id) else redis.call('HSET', key, id, text) end
end

redis.call('HSET', K.experiment, 'learned_at', clock(now()))
local results = redis.call('HINCRBY', K.beliefs, 'results', 1)
if A.is_reference then redis.call('HINCRBY', K.beliefs, 'references', 1) end
for i, id in ipairs(A.ids) do
  redis.call('HSET', K.hypotheses, id, A.texts[i])
  keep(K.hypothesis_evidence, id, A.evidence[i])
  keep(K.unpaired, id, A.unpaired[i])
  keep(K.used_references, id, A.used[i])
  keep(K.part_sums, id, A.blocks[i])
end
for _, id in ipairs(A.archived) do
  redis.call('HSET', K.archived_hypotheses, id, redis.call('HGET', K.hypotheses, id))
  for _, key in ipairs({K.hypotheses, K.unpaired, K.used_references, K.part_sums}) do redis.call('HDEL', key, id) end
end
if A.reference then
  redis.call('RPUSH', K.references, A.reference)
  redis.call('LTRIM', K.references, -tonumber(A.most), -1)
end
for i, band in ipairs(A.bands) do redis.call('HSET', K.reprieved, band, A.sums[i]) end
change_beliefs()
for i, id in ipairs(A.believed) do emit('hypothesis.believed', A.tag, id, A.believed_data[i]) end
for i, id in ipairs(A.settled) do emit('hypothesis.settled', A.tag, id, A.settled_data[i]) end
if results % tonumber(A.checkpoint_every) == 0 then
  emit('journal.due', A.tag, A.tag, string.format('{"results":%d}', results))
end
if A.batch_every and results % tonumber(A.batch_every) == 0 then
  emit('pipeline.due', A.tag, A.tag, string.format('{"results":%d}', results))
end
return 'ok'
