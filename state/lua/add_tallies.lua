-- Add what a process counted to the lab's sums: for graphs, no decision reads them.
-- keys: tallies
-- args: names* amounts*
-- returns: ok
for i, name in ipairs(A.names) do redis.call('HINCRBYFLOAT', K.tallies, name, A.amounts[i]) end
return 'ok'
