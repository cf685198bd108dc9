"""Experiments: opening a tag, entering, ending, reading, waiting."""
