"""journal::*: what the swarm has learned, in prose."""
