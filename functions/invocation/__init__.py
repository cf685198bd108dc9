"""Functions of the noun `invocation`."""
