"""A worker of a swarm: it pulls configs over HTTP, runs its owner's train.py with them, and reports."""
