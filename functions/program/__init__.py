"""program::*: the programme that workers follow."""
