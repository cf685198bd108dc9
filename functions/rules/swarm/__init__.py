"""Rules of a swarm: dimensions, the next configs, results."""

from functions.rules.swarm.simulating import simulate_metric as simulate_metric
