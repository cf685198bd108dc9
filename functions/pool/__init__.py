"""Functions of the noun `pool`."""
