"""Functions of the noun `dimension`."""
