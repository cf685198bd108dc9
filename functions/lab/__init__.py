"""Functions of the noun `lab`."""
