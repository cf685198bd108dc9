"""Functions of the noun `gpu`."""
