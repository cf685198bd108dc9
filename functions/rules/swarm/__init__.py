"""Rules of the swarm."""

from functions.rules.swarm.simulating import simulate_metric as simulate_metric
