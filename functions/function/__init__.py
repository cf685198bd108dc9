"""Functions of the noun `function`."""
