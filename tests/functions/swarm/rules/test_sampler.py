"""The default sampler finds more than Thompson sampling, and knows a best config."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean

import pytest

from functions.swarm.rules.gaussian_search import GaussianProcess
from functions.swarm.rules.proposals import AtRandom, ConfigProposal, ConfigSampler, Observation, canonical
from functions.swarm.rules.sampling import Thompson, sampler_of
from functions.swarm.rules.shapes import Shape, drawn_config
from state.policy import Policy
from state.records import Dimension, Value
from tests.functions.swarm.rules.sample import INVESTIGATE, LAYERS, OPTIMIZER, SOME, bowl, searched

MODEL = GaussianProcess()


def proposed(
    seen: Sequence[Observation], dimensions: Sequence[Dimension] = SOME, n: int = 8
) -> list[ConfigProposal]:
    return MODEL.propose(dimensions, seen, INVESTIGATE, n, Random(1))


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


def valley(config: Mapping[str, Value], rng: Random, noise: float = 0.01) -> float:
    """The best learning rate depends on the optimizer and on the depth, as it does in practice."""
    wanted = {"adam": 1e-3, "lion": 3e-4, "sgd": 3e-2, "adafactor": 1e-2}[str(config["OPTIMIZER"])]
    wanted *= 12 / float(config["DEPTH"])
    away = abs(math.log10(float(config["LR"]) / wanted)) + 0.03 * (24 - float(config["DEPTH"]))
    return away + 0.3 * float(config["DROPOUT"]) + rng.gauss(0, noise)


def test_it_finds_better_configs_than_others_where_dimensions_interact() -> None:
    def best(sampler: ConfigSampler | None, seed: int) -> float:
        """The best true value among 48 runs."""
        seen = [o for o in searched(sampler, valley, 48, seed) if o.value is not None]
        return valley(min(seen, key=lambda o: o.value or 0.0).config, Random(0), noise=0.0)

    model, thompson, blind = (fmean(best(how, n) for n in range(3)) for how in (MODEL, Thompson(), None))

    assert model < 0.6 * thompson
    assert model < 0.4 * blind


CENTER: dict[str, Value] = {"LR": 0.003}
CONSTRAINED = Shape("investigate", free=("LR",), constraint={"LR": {"max": 0.01}}, center=CENTER)


@pytest.mark.parametrize(
    ("name", "shape", "kind"),
    [
        (Policy().sampler, INVESTIGATE, GaussianProcess),
        ("thompson", INVESTIGATE, Thompson),
        *(
            ("gaussian_process", Shape(tests), AtRandom)
            for tests in ("falsify", "validate", "decision_sprint")
        ),
        ("gaussian_process", CONSTRAINED, Thompson),
        ("gaussian_process", Shape("investigate", free=("LR",), center=CENTER), AtRandom),
        ("gaussian_process", Shape("exploit", center=CENTER), GaussianProcess),
    ],
)
def test_what_tests_something_is_not_led_to_good_values(name: str, shape: Shape, kind: type) -> None:
    assert isinstance(sampler_of(name, shape), kind)
