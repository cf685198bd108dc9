"""journal::*: a swarm's journal of what it has learned."""
