"""The lab's events as server-sent events."""
