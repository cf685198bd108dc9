"""The life of a proposed dimension: proposed, counted while the search stalls, tried as a canary, kept or removed."""
