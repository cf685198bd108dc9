"""Rules of the swarm."""
