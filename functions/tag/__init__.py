"""Functions of the noun `tag`."""
