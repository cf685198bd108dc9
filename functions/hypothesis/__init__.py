"""hypothesis::*: the hypotheses that a swarm tests."""
