"""hypothesis::*: what the swarm tests."""
