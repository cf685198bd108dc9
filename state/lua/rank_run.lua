-- Enter what a run has at a bucket among its peers, and remember what it is told there; asked again, it is told the same.
-- parts: rank
-- args: fence bucket class_id rank_class value metric progress told tick_data
-- returns: continue | stop | extend | lost
local e = redis.call('HMGET', K.experiment, 'status', 'attempt', 'fence')
if e[1] ~= 'running' or (e[2] or '0') ~= A.attempt or (e[3] or '0') ~= A.fence then return 'lost' end
return (rank())
