-- Issue a token, or make one of an enroll token for one of its uses. The name is its bearer's: an operator may give a
-- name again once its token was revoked, an enroll token never. An open lab's first token is an operator's.
-- parts: token
-- keys: token enroll_token?
-- args: id name role kind fields lasts_s? event_data
-- returns: ok | taken | first | ended
local is_operators = A.role == 'operator' and A.kind == 'access'
if not K.enroll_token and not is_operators and redis.call('EXISTS', K.closed) == 0 then return 'first' end
return issue_token(now(), K.token, {
  id = A.id, name = A.name, role = A.role, kind = A.kind, fields = A.fields, lasts_s = A.lasts_s,
  event_data = A.event_data, is_new = K.enroll_token ~= nil,
}, K.enroll_token) or 'ok'
