"""The default sampler finds more than Thompson sampling, and knows a best config."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import fmean

import pytest

from functions.swarm.rules.gaussian_search import GaussianProcess
from functions.swarm.rules.proposals import (
    AtRandom,
    ConfigProposal,
    ConfigSampler,
    Observation,
    canonical,
    drawn_proposal,
)
from functions.swarm.rules.sampling import Thompson, sampler_of
from functions.swarm.rules.shapes import Shape, drawn_config
from state.policy import Policy
from state.records import Dimension, Value
from tests.functions.swarm.rules.sample import INVESTIGATE, LAYERS, OPTIMIZER, SOME

MODEL = GaussianProcess()


def proposed(
    seen: Sequence[Observation],
    dimensions: Sequence[Dimension] = SOME,
    shape: Shape = INVESTIGATE,
    n: int = 8,
    seed: int = 1,
) -> list[ConfigProposal]:
    return MODEL.propose(dimensions, seen, shape, n, Random(seed))


def bowl(config: Mapping[str, Value], rng: Random, noise: float = 0.01) -> float:
    """Best at LR 0.003, 4 layers, dropout 0.1 and lion, where it is about 0."""
    away = 0.05 * abs(math.log10(float(config["LR"])) - math.log10(0.003))
    away += 0.01 * abs(float(config["LAYERS"]) - 4) + 0.1 * abs(float(config["DROPOUT"]) - 0.1)
    return away + 0.03 * (config["OPTIMIZER"] != "lion") + rng.gauss(0, noise)


def learned(n: int = 60, seed: int = 3) -> list[Observation]:
    """Runs of configs at random."""
    rng = Random(seed)
    configs = [drawn_config(SOME, INVESTIGATE, rng) for _ in range(n)]
    return [Observation(config, bowl(config, rng)) for config in configs]


def mean_of(proposals: Sequence[ConfigProposal]) -> float:
    return fmean(bowl(p.config, Random(0), noise=0.0) for p in proposals)


def test_what_it_takes_for_the_best_is_what_all_runs_speak_for_and_not_the_luckiest() -> None:
    seen = learned(100)
    lucky = max(seen, key=lambda one: bowl(one.config, Random(0), noise=0.0))

    found = MODEL.believed_best(SOME, [*seen, Observation(lucky.config, -0.05)])

    assert bowl(found or {}, Random(0), noise=0.0) < BLIND / 3


def test_it_is_not_misled_by_the_luck_of_many_runs_near_the_best() -> None:
    taken, luckiest = list[float](), list[float]()
    for seed in range(6):
        rng, seen = Random(seed), learned(60, seed)
        best = min(seen, key=lambda one: one.value or 0.0).config
        near = [{**best, "LR": float(f"{10 ** rng.uniform(-4, -1):.3g}")} for _ in range(100)]
        seen += [Observation(config, bowl(config, rng, noise=0.03)) for config in near]
        found = MODEL.believed_best(SOME, seen) or {}
        taken.append(bowl(found, Random(0), noise=0.0))
        luckiest.append(bowl(min(seen, key=lambda one: one.value or 0.0).config, Random(0), noise=0.0))

    assert fmean(taken) < 0.75 * fmean(luckiest)


BLIND = fmean(bowl(one.config, Random(0), noise=0.0) for one in learned(400))
"""Of configs at random."""


# -- what it learns


def test_it_proposes_what_is_better_than_configs_at_random() -> None:
    assert mean_of(proposed(learned())) < 0.4 * BLIND


@pytest.mark.parametrize("poison", [1e300, -1e300, 1.7e308, -1.7e308])
def test_a_poisoned_result_does_not_blind_it(poison: float) -> None:
    seen, rng = learned(), Random(5)
    worst = max(range(60), key=lambda n: seen[n].value or 0.0)
    seen[worst] = Observation(seen[worst].config, poison)

    misled = proposed(seen)
    after = proposed([*seen, *(Observation(p.config, bowl(p.config, rng)) for p in misled)])

    assert mean_of(after) < 0.5 * BLIND


# -- what is not known


def test_a_batch_is_spread() -> None:
    assert len({canonical(p.config) for p in proposed(learned(), n=30)}) > 25


def test_what_is_pending_is_not_proposed_again() -> None:
    seen = learned()
    first = proposed(seen, n=1)[0].config
    values = [(layers, optimizer) for layers in range(1, 6) for optimizer in OPTIMIZER.categories or ()]
    few = [LAYERS, OPTIMIZER]
    small = [Observation({"LAYERS": a, "OPTIMIZER": b}, 0.1 * a) for a, b in values[:8]]
    best = proposed(small, few, n=1)[0].config

    again = proposed([*seen, *[Observation(first, None, pending=True)] * 3], n=1)[0].config
    other = proposed([*small, *[Observation(best, None, pending=True)] * 9], few, n=1)[0].config

    assert again != first
    assert other != best


# -- at equal budget

Propose = Callable[[Sequence[Observation], Random], list[ConfigProposal]]


def valley(config: Mapping[str, Value], rng: Random, noise: float = 0.01) -> float:
    """The best learning rate depends on the optimizer and on the depth, as it does in practice."""
    wanted = {"adam": 1e-3, "lion": 3e-4, "sgd": 3e-2, "adafactor": 1e-2}[str(config["OPTIMIZER"])]
    wanted *= 12 / float(config["DEPTH"])
    away = abs(math.log10(float(config["LR"]) / wanted)) + 0.03 * (24 - float(config["DEPTH"]))
    return away + 0.3 * float(config["DROPOUT"]) + rng.gauss(0, noise)


def searched(propose: Propose, seed: int) -> float:
    """The best true value among 48 runs, 8 at a time; every tenth crashes."""
    rng, seen = Random(seed), list[Observation]()
    while len(seen) < 48:
        for proposal in propose(seen, rng):
            seen.append(
                Observation(proposal.config, None if rng.random() < 0.1 else valley(proposal.config, rng))
            )
    best = min((o for o in seen if o.value is not None), key=lambda o: o.value or 0.0)
    return valley(best.config, rng, noise=0.0)


def test_it_finds_better_configs_than_others_where_dimensions_interact() -> None:
    def asks(sampler: ConfigSampler) -> Propose:
        return lambda seen, rng: sampler.propose(SOME, seen, INVESTIGATE, 8, rng)

    def at_random(seen: Sequence[Observation], rng: Random) -> list[ConfigProposal]:
        return [drawn_proposal(SOME, INVESTIGATE, rng, "") for _ in range(8)]

    model, thompson, blind = (
        fmean(searched(how, seed) for seed in range(3)) for how in (asks(MODEL), asks(Thompson()), at_random)
    )

    assert model < 0.6 * thompson
    assert model < 0.4 * blind


# -- where it is asked


def test_a_policy_names_its_sampler_and_the_default_is_the_model() -> None:
    assert isinstance(sampler_of(Policy().sampler, INVESTIGATE), GaussianProcess)
    assert isinstance(sampler_of("thompson", INVESTIGATE), Thompson)


@pytest.mark.parametrize("strategy", ["falsify", "validate", "decision_sprint"])
def test_what_tests_something_is_not_led_to_good_values(strategy: str) -> None:
    tests = Shape(strategy)  # type: ignore[arg-type]
    of_claim = Shape("investigate", free=("LR",), center={"LR": 0.003})

    better = Shape("investigate", free=("LR",), constraint={"LR": {"max": 0.01}}, center={"LR": 0.003})

    assert isinstance(sampler_of("gaussian_process", tests), AtRandom)
    assert isinstance(sampler_of("gaussian_process", better), Thompson)
    assert isinstance(sampler_of("gaussian_process", of_claim), AtRandom)
    assert isinstance(sampler_of("gaussian_process", Shape("exploit", center={"LR": 0.003})), GaussianProcess)
