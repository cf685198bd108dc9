"""Functions of the noun `event`."""
