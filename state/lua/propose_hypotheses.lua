-- Enter hypotheses among those that results bear on; an archived one begins anew.
-- parts: events beliefs
-- keys: hypotheses archived_hypotheses hypothesis_evidence
-- args: tag ids* texts* proposed* changed_ids* changed_texts*
-- `proposed` are the data of their events; `changed_ids` are open, and go on otherwise.
-- Returns ok | stale
if beliefs_are_stale() then return 'stale' end
change_beliefs()
for i, id in ipairs(A.changed_ids) do redis.call('HSET', K.hypotheses, id, A.changed_texts[i]) end
for i, id in ipairs(A.ids) do
  redis.call('HDEL', K.archived_hypotheses, id)
  redis.call('HDEL', K.hypothesis_evidence, id)
  redis.call('HSET', K.hypotheses, id, A.texts[i])
  emit('hypothesis.proposed', A.tag, id, A.proposed[i])
end
return 'ok'
