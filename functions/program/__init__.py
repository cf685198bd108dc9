"""program::*: the programs that agents and workers follow."""
