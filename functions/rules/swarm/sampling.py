"""Which sampler proposes the configs of a shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from functions.rules.swarm.proposals import AtRandom, ConfigSampler
from functions.rules.swarm.shapes import Shape, SwarmStrategy
from functions.rules.swarm.thompson import Thompson
from state.policy import SamplerName

SEARCHING: frozenset[SwarmStrategy] = frozenset({"exploit", "converge", "investigate", "moonshot"})
"""Strategies that look for good configs, where they are not of a claim; the others test something."""


def sampler_of(name: SamplerName, shape: Shape) -> ConfigSampler:
    """The sampler of this name where good configs are looked for.

    What tests a claim maps its dimensions, the bad values too. Where no values are claimed to be better, values are
    drawn at random.
    """
    if shape.strategy in SEARCHING and not shape.is_of_claim:
        return SAMPLERS[name]()
    return Thompson() if shape.constraint else AtRandom()


def _gaussian_process() -> ConfigSampler:
    # numpy and scipy take most of a second to import, and few processes propose configs
    from functions.rules.swarm.gaussian_process.sampler import GaussianProcess

    return GaussianProcess()


SAMPLERS: Mapping[SamplerName, Callable[[], ConfigSampler]] = {
    "gaussian_process": _gaussian_process,
    "thompson": Thompson,
}
"""By their name in the policy."""
