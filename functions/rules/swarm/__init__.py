"""Rules of a swarm: what may vary, which configs run next, what results count for."""

from functions.rules.swarm.simulating import simulate_metric as simulate_metric
