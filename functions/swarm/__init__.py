"""Swarms: registration, dimensions, the next configs, results."""
