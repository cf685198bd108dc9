"""State keeps everything Nightjar knows, in Redis; nothing else in the house speaks to Redis."""
