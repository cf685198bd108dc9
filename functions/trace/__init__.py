"""Functions of the noun `trace`."""
