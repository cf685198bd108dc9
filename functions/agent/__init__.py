"""Functions of the noun `agent`."""
