"""Processes bound to a device: one keeper and one RQ worker per GPU or CPU slot."""
