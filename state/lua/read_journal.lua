-- The newest checkpoints of a journal, or those from one on, as many as fit; one at least. Writes nothing.
-- keys: journal
-- args: first? most
-- `most` bytes fit; `first` is a number, 1 for the first checkpoint.
-- returns: {how many there are, texts, oldest first}
local count = redis.call('LLEN', K.journal)
local from, to, step = count, 1, -1
if A.first then from, to, step = tonumber(A.first), count, 1 end
local texts, bytes = {}, 0
for number = from, to, step do
  local text = redis.call('LRANGE', K.journal, number - 1, number - 1)[1]
  bytes = bytes + #text
  if bytes > tonumber(A.most) and #texts > 0 then break end
  table.insert(texts, step == 1 and #texts + 1 or 1, text)
end
return {count, texts}
