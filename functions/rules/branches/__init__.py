"""Which branch of a tag's experiments grows next, and what a result changes of it."""
