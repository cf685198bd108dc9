-- Create a tag with its strategy and its policy.
-- parts: tag
-- args: tag policy branch of_tag
-- Returns when it was created | exists
if redis.call('EXISTS', K.tag) == 1 then return 'exists' end
return create_tag()
