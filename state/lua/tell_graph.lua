-- Keep what a language model says of the graph of a tag's hypotheses.
-- parts: events
-- keys: told_graph
-- args: tag text author digest told
-- `digest` is that of the beliefs that it tells of, `told` the data of the event.
-- Returns ok
redis.call('HSET', K.told_graph, 'text', A.text, 'author', A.author, 'digest', A.digest)
emit('graph.told', A.tag, A.tag, A.told)
return 'ok'
