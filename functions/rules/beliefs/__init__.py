"""Rules of a swarm's beliefs: what is claimed, how well it is supported, and who tests it."""
