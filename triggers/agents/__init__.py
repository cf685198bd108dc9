"""Coding agents that `nightjar agent` starts and keeps at work."""
