"""Branches of a tag: traces, selections, schedulers, merging."""
