"""swarm::*: the workers of a swarm, what they run and what they have found."""
