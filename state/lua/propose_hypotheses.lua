-- Enter hypotheses among those that results bear on.
-- parts: events beliefs
-- keys: hypotheses
-- args: tag ids* texts* proposed*
-- `proposed` are the data of their events.
-- Returns ok | stale
if beliefs_are_stale() then return 'stale' end
change_beliefs()
for i, id in ipairs(A.ids) do
  redis.call('HSET', K.hypotheses, id, A.texts[i])
  emit('hypothesis.proposed', A.tag, id, A.proposed[i])
end
return 'ok'
