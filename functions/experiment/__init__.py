"""Functions of the noun `experiment`."""
