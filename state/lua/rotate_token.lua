-- Give a token a new secret; one of those before, with the digest `stays`, holds for `overlap_s` seconds more.
-- `digest` is that of the present secret. `bearer` is the token's id where its bearer asks, with the secret that stays.
-- parts: rotation
-- keys: token
-- args: digest new_digest stays overlap_s bearer? event_data
-- returns: ok | stale | rotated_out: the bearer asks with an old secret, and the present one was used already
return rotate_token(now(), K.token, {
  digest = A.digest, new_digest = A.new_digest, stays = A.stays, overlap_s = A.overlap_s, bearer = A.bearer,
  event_data = A.event_data,
}) or 'ok'
