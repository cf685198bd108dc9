"""Both samplers learn from every kind of run and stay in their shape."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from functions.swarm.rules.dimensions import value_of
from functions.swarm.rules.gaussian_search import GaussianProcess
from functions.swarm.rules.proposals import ConfigProposal, ConfigSampler, Observation, promoted
from functions.swarm.rules.rooms import room_of
from functions.swarm.rules.sampling import Thompson
from functions.swarm.rules.shapes import Shape, freedoms_of
from state.records import Dimension, Value
from tests.functions.swarm.rules.sample import (
    DEPTH,
    INVESTIGATE,
    OPTIMIZER,
    RESULTS,
    SHAPES,
    SOME,
    at,
    by_optimizer,
    dimension,
    runs,
    share,
    swarms,
)

each = pytest.mark.parametrize("sampler", [Thompson(), GaussianProcess()], ids=["thompson", "model"])


def proposed(
    sampler: ConfigSampler, seen: Sequence[Observation], dimensions: Sequence[Dimension] = SOME, n: int = 40
) -> list[ConfigProposal]:
    return sampler.propose(dimensions, seen, INVESTIGATE, n, Random(1))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Dimension], list[Observation]]:
    """A tag's dimensions, and runs of their configs that ended in any way."""
    found = draw(swarms())
    kinds = draw(st.lists(st.tuples(RESULTS, st.booleans()), max_size=20))
    seen = runs([value for value, _ in kinds], found)
    return found, [
        Observation(o.config, o.value, pending=is_pending)
        for o, (_, is_pending) in zip(seen, kinds, strict=True)
    ]


@each
@settings(max_examples=50)
@given(histories(), SHAPES, st.integers(0, 2**32))
def test_every_proposal_is_valid_and_stays_in_its_shape(
    sampler: ConfigSampler, history: tuple[list[Dimension], list[Observation]], shape: Shape, seed: int
) -> None:
    found, seen = history

    proposals = sampler.propose(found, seen, shape, 3, Random(seed))
    near = promoted(seen, found, Random(seed), shape)

    assert len(proposals) == 3
    free = {f.dimension.name: f for f in freedoms_of(found, shape)}
    for proposal in [*proposals, *near]:
        assert 0 <= proposal.priority <= 1
        assert list(proposal.config) == [d.name for d in found]
        for one in found:
            value, room = proposal.config[one.name], room_of(one, shape.constraint.get(one.name))
            assert value_of(one, value) == value
            assert one.frozen or room is None or room.holds(value)
            assert proposal in near or free[one.name].room.holds(value) or value == free[one.name].fixed


@each
@pytest.mark.parametrize("best", ["sgd", "lion"])
@pytest.mark.parametrize(("factor", "shift"), [(1e-6, 0.0), (1.0, -3.0), (1e6, 5.0)])
def test_it_learns_at_any_scale(sampler: ConfigSampler, best: str, factor: float, shift: float) -> None:
    seen = [Observation(o.config, factor * (o.value or 0.0) + shift) for o in by_optimizer(best)]
    assert share(proposed(sampler, seen), "OPTIMIZER", best) > 0.75


@each
def test_crashes_are_evidence_against_what_crashed(sampler: ConfigSampler) -> None:
    seen = [
        Observation(o.config, None if o.config["OPTIMIZER"] == "sgd" else o.value)
        for o in by_optimizer("adam", gain=0.0)
    ]
    assert share(proposed(sampler, seen), "OPTIMIZER", "sgd") < 0.05


@each
def test_it_tells_true_from_one(sampler: ConfigSampler) -> None:
    flag = dimension("FLAG", "categorical", categories=[1, True])
    seen = [Observation({"FLAG": value}, float(value is True)) for value in (1, True) * 20]
    first = [sampler.propose([flag], seen, INVESTIGATE, 1, Random(seed))[0] for seed in range(20)]
    assert sum(type(p.config["FLAG"]) is int for p in first) > 14


@each
def test_equal_results_teach_nothing_and_stop_nothing(sampler: ConfigSampler) -> None:
    proposals = proposed(sampler, runs([0.25] * 26))
    assert len({p.config["OPTIMIZER"] for p in proposals}) == 4
    assert len({p.config["LAYERS"] for p in proposals}) >= 4


@each
def test_where_all_is_frozen_every_proposal_is_the_one_config(sampler: ConfigSampler) -> None:
    stands = [at(DEPTH, 8), at(OPTIMIZER, "sgd")]
    config: dict[str, Value] = {"DEPTH": 8, "OPTIMIZER": "sgd"}
    seen = runs([0.1, 0.2, 0.3], stands)
    assert [p.config for p in promoted(seen, stands, Random(1))] == [config]
    assert [p.config for p in proposed(sampler, seen, stands, n=5)] == [config] * 5
