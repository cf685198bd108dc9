"""Functions of the noun `webhook`."""
