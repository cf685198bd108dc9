-- Keep the first answer to an Idempotency-Key. It is dropped where its caller's quota has no room.
-- keys: answer
-- args: text ttl_s
-- Returns ok
redis.call('SET', K.answer, A.text, 'EX', A.ttl_s)
count_stored(given_bytes() + #K.answer)
return 'ok'
