"""Functions of the noun `report`."""
