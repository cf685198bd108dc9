-- The place of an experiment among those that wait for the same GPUs. Writes nothing.
-- parts: queue
-- keys: rivals* rivals_of_parked*
-- args: id
-- Returns its place, counted from 1; 0 where it does not wait. One that is parked is told the place that it would come
-- back to.
local place = position_in(K.queue, A.id, K.rivals)
return place > 0 and place or position_in(K.parked, A.id, K.rivals_of_parked)
