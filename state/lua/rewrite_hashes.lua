-- A step of a migration changes fields of hashes, if it still is this process's turn.
-- keys: migration hashes*
-- args: token fields*
-- returns: ok | lost (another process has taken the migration over)
-- Each of `fields` is JSON for the hash at the same place: [name, value] sets a field, [name] removes it.
if redis.call('HGET', K.migration, 'token') ~= A.token then return 'lost' end
for i, hash in ipairs(K.hashes) do
  for _, pair in ipairs(cjson.decode(A.fields[i])) do
    redis.call(pair[2] and 'HSET' or 'HDEL', hash, unpack(pair))
  end
end
return 'ok'
