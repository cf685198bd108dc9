"""run::*: the runs of a swarm while they go on."""
