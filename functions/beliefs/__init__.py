"""Hypotheses of a swarm: evidence, allocation, tests, journal."""
