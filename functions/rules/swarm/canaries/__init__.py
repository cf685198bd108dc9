"""Trials of proposed dimensions (canaries): proposed, counted while the search stalls, tried, kept or removed."""
