"""Dimensions, shapes and runs for the tests of a swarm's rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any, get_args

from hypothesis import assume
from hypothesis import strategies as st

from functions.experiments.rules.opening import swarm_policy, swarm_tag
from functions.swarm.rules.dimensions import DeclaredDimension, checked, frozen
from functions.swarm.rules.proposals import ConfigProposal, ConfigSampler, Observation, drawn_proposal
from functions.swarm.rules.shapes import Shape, SwarmStrategy, drawn_config
from state.errors import Invalid
from state.policy import Policy
from state.records import Dimension, Value

NUMBERS = st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6)
VALUES = NUMBERS | st.booleans() | st.text(max_size=5)
POSITIVE = st.floats(1e-9, 1e6) | st.integers(1, 10**6)
ENDS = {
    "float_log": POSITIVE,
    "float": POSITIVE | POSITIVE.map(lambda number: -number) | st.just(0),
    "int": st.integers(-(10**6), 10**6),
}
CATEGORIES = st.lists(
    POSITIVE | st.integers(-9, 9) | st.booleans() | st.text("abcABC 12é", max_size=5),
    min_size=1,
    max_size=6,
    unique_by=lambda category: (isinstance(category, bool), category),
)
STRATEGIES: Sequence[SwarmStrategy] = get_args(SwarmStrategy)
INVESTIGATE = Shape("investigate")


def dimension(name: str, dtype: str, **fields: Any) -> Dimension:
    return checked(DeclaredDimension.model_validate({"name": name, "dtype": dtype, **fields}))


LR = dimension("LR", "float_log", min=1e-4, max=1e-1)
DEPTH = dimension("DEPTH", "int", min=4, max=24)
LAYERS = dimension("LAYERS", "int", min=1, max=5)
DROPOUT = dimension("DROPOUT", "float", min=0, max=0.5)
OPTIMIZER = dimension("OPTIMIZER", "categorical", categories=["adam", "sgd", "lion", "adafactor"])
SOME = [LR, DEPTH, LAYERS, DROPOUT, OPTIMIZER]


def at(found: Dimension, value: object) -> Dimension:
    """A dimension frozen at a value."""
    stands = frozen(found, value, by="ann", at=1.0, reason="a test")
    assert stands is not None
    return stands


def runs(values: Sequence[float | None], dimensions: Sequence[Dimension] = SOME) -> list[Observation]:
    """Runs of configs at random with these values."""
    rng = Random(7)
    return [Observation(drawn_config(dimensions, INVESTIGATE, rng), value) for value in values]


@st.composite
def dimensions(draw: st.DrawFn, name: str = "A") -> Dimension:
    """Any dimension that is let in."""
    dtype = draw(st.sampled_from(["float_log", "float", "int", "categorical"]))
    fields: dict[str, Any] = {"name": name, "dtype": dtype}
    if dtype == "categorical":
        fields["categories"] = draw(CATEGORIES)
    else:
        fields["min"], fields["max"] = sorted(
            draw(st.lists(ENDS[dtype], min_size=2, max_size=2, unique=True))
        )
    if draw(st.booleans()):
        fields |= {"is_canary": True, "canary_prob": draw(st.none() | st.floats(0.01, 1))}
    try:
        return checked(DeclaredDimension.model_validate(fields))
    except Invalid:  # two ends without two short numbers between them
        assume(False)
        raise


@st.composite
def swarms(draw: st.DrawFn) -> list[Dimension]:
    """The dimensions of a tag, some of them frozen."""
    found = [draw(dimensions(name)) for name in "ABC"[: draw(st.integers(1, 3))]]
    rng = Random(draw(st.integers(0, 99)))
    return [
        at(each, drawn_config([each], INVESTIGATE, rng)[each.name]) if draw(st.booleans()) else each
        for each in found
    ]


NAMES = st.sampled_from("ABCD")
ALLOWED = (
    VALUES
    | st.lists(VALUES, max_size=4)
    | st.fixed_dictionaries({}, optional={"min": NUMBERS, "max": NUMBERS})
)
SHAPES = st.builds(
    Shape,
    strategy=st.sampled_from(STRATEGIES),
    free=st.none() | st.lists(NAMES, unique=True).map(tuple),
    constraint=st.dictionaries(NAMES, ALLOWED, max_size=2),
    center=st.dictionaries(NAMES, VALUES, max_size=3),
)

RESULTS = st.none() | st.floats(allow_nan=False, allow_infinity=False)


def share(proposals: Sequence[ConfigProposal], name: str, value: Value) -> float:
    """The share of these proposals with this value."""
    return fmean(p.config[name] == value for p in proposals)


def by_optimizer(better: str, gain: float = 1.0, n: int = 60) -> list[Observation]:
    """Runs in which one optimizer is better by far."""
    rng = Random(3)
    seen = runs([0.0] * n)
    return [Observation(o.config, rng.gauss(0, 0.1) - gain * (o.config["OPTIMIZER"] == better)) for o in seen]


def swarm_facts(dimensions: Sequence[Dimension]) -> dict[str, Any]:
    """The fields that all facts of a swarm have, for one with these dimensions and one worker."""
    whole: dict[str, Any] = {"now": 1.0, "tag": swarm_tag("swarm"), "policy": swarm_policy(Policy())}
    whole |= {"policy_version": 1, "dimensions": dimensions, "dimensions_version": 1, "active_workers": 1}
    return whole | {"best": None, "newest_at": 0.0, "populations": [], "in_flight": {}}


def bowl(config: Mapping[str, Value], rng: Random, noise: float = 0.01) -> float:
    """Best at LR 0.003, 4 layers, dropout 0.1 and lion, where it is about 0."""
    away = 0.05 * abs(math.log10(float(config["LR"])) - math.log10(0.003))
    away += 0.01 * abs(float(config["LAYERS"]) - 4) + 0.1 * abs(float(config["DROPOUT"]) - 0.1)
    return away + 0.03 * (config["OPTIMIZER"] != "lion") + rng.gauss(0, noise)


def searched(
    sampler: ConfigSampler | None, truth: Callable[[Mapping[str, Value], Random], float], n: int, seed: int
) -> list[Observation]:
    """A search of so many runs, 8 at a time; every tenth crashes. Without a sampler it is at random."""
    rng, seen = Random(seed), list[Observation]()
    while len(seen) < n:
        blind = [drawn_proposal(SOME, INVESTIGATE, rng, "") for _ in range(8 * (sampler is None))]
        for proposal in sampler.propose(SOME, seen, INVESTIGATE, 8, rng) if sampler else blind:
            value = None if rng.random() < 0.1 else truth(proposal.config, rng)
            seen.append(Observation(proposal.config, value))
    return seen
