"""Functions of the noun `search`."""
