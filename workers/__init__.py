"""Processes bound to a resource: one keeper and one RQ worker per GPU or CPU slot."""
