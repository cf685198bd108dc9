"""Thompson sampling tries what it has not seen; priorities and neighbours of the best configs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.swarm.rules.proposals import LIMIT, ConfigProposal, Observation, promoted, scored, top_configs
from functions.swarm.rules.rooms import room_of
from functions.swarm.rules.sampling import BUCKETS, Thompson, index_of, parts
from state.records import Dimension, Value
from tests.functions.swarm.rules.sample import (
    DEPTH,
    INVESTIGATE,
    LAYERS,
    LR,
    OPTIMIZER,
    RESULTS,
    SOME,
    bowl,
    by_optimizer,
    dimensions,
    runs,
    searched,
    share,
)

THOMPSON = Thompson()


def proposed(
    seen: Sequence[Observation], dimensions: Sequence[Dimension] = SOME, n: int = 200, seed: int = 1
) -> list[ConfigProposal]:
    return THOMPSON.propose(dimensions, seen, INVESTIGATE, n, Random(seed))


@given(st.lists(RESULTS, min_size=1, max_size=30))
def test_a_score_is_a_number_and_bounded_whatever_the_results_are(values: list[float | None]) -> None:
    scores = scored(runs(values, [LR]))
    assert all(abs(score) <= LIMIT * (1 + 1e-9) for score in [*scores.each, scores.mean])


@given(dimensions(), st.integers(0, 2**32))
def test_every_value_lies_in_the_bucket_that_it_is_drawn_from(found: Dimension, seed: int) -> None:
    room, index = room_of(found), index_of(found)
    assert room is not None

    split = parts(room)

    assert len(split) <= (len(found.categories) if found.categories else BUCKETS)
    for bucket, part in split.items():
        value = part.drawn(Random(seed))
        at_an_edge = found.dtype in ("float", "float_log") and (index(value) or 0) - 1 == bucket
        assert index(value) == bucket or at_an_edge
    assert index("no value of it" * 9) is None


def test_buckets_are_equal_in_the_dimension_s_own_scale() -> None:
    assert [index_of(LR)(value) for value in (1e-4, 2e-4, 3e-4, 3e-3, 3.3e-3, 0.1)] == [0, 0, 1, 3, 4, 7]
    assert [index_of(LAYERS)(value) for value in (1, 2, 3, 4, 5)] == [0, 1, 2, 3, 4]
    depths = Counter(index_of(DEPTH)(depth) for depth in range(4, 25))
    assert depths == dict.fromkeys(range(8), 3) | {2: 2, 5: 2, 7: 2}
    assert [index_of(LR)(value) for value in (True, "0.01", 1.0)] == [None] * 3


def test_what_it_has_not_seen_can_win() -> None:
    seen = [o for o in by_optimizer("sgd", n=200) if o.config["OPTIMIZER"] != "lion"]
    few = proposed(seen[:12])
    bad = proposed([o for o in seen if o.config["OPTIMIZER"] != "sgd"])
    assert share(few, "OPTIMIZER", "lion") > 0.02
    assert share(bad, "OPTIMIZER", "lion") > 0.1
    assert any("OPTIMIZER" in p.why for p in bad if p.config["OPTIMIZER"] == "lion")


def test_one_batch_spreads_because_what_it_proposed_is_pending() -> None:
    alone = {proposed([], [OPTIMIZER], n=1, seed=seed)[0].config["OPTIMIZER"] for seed in range(400)}
    batches = [proposed([], [OPTIMIZER], n=40, seed=seed) for seed in range(20)]
    assert len(alone) == 4
    assert all(len({p.config["OPTIMIZER"] for p in batch}) == 4 for batch in batches)


def test_what_wins_in_a_batch_counts_as_run_at_the_overall_mean() -> None:
    others = ("adam", "sgd", "adafactor")
    seen = [Observation({"OPTIMIZER": name}, value) for name in others for value in (0.0, 0.1)]
    seen += [Observation({"OPTIMIZER": "lion"}, -9.0)] * 3
    alone = [proposed(seen, [OPTIMIZER], n=1, seed=seed)[0] for seed in range(60)]
    batch = proposed(seen, [OPTIMIZER], n=60)
    assert share(batch, "OPTIMIZER", "lion") < 0.9 < share(alone, "OPTIMIZER", "lion")


def test_a_pending_run_counts_as_the_mean_of_those_that_ended() -> None:
    seen = runs([0.0, 1.0, 5.0, None])
    scores = scored([*seen, Observation(seen[0].config, None, pending=True)])
    assert scores.each[-1] == scores.mean == pytest.approx(fmean(scores.each[:-1]))


@pytest.mark.parametrize("poison", [1e300, -1e300, 1.7e308, -1.7e308])
def test_a_poisoned_result_does_not_blind_it(poison: float) -> None:
    seen = by_optimizer("sgd")
    seen[7] = Observation({**seen[7].config, "OPTIMIZER": "adam"}, poison)
    assert share(proposed(seen), "OPTIMIZER", "sgd") > 0.75


def test_the_best_fifth_is_taken_by_the_mean_of_each_config_and_not_by_one_lucky_run() -> None:
    steady, lucky = Observation({"DEPTH": 8}, -0.3), Observation({"DEPTH": 9}, -9.0)
    seen = [*[steady] * 6, lucky, *[Observation(lucky.config, 0.2)] * 3]
    seen += [Observation({"DEPTH": 10 + n}, 0.05 * n) for n in range(8)]
    best = top_configs(seen, [DEPTH])
    assert best == [steady.config, *best[1:]]
    assert len(best) == 2
    assert lucky.config not in top_configs([*seen, *[Observation(lucky.config, 0.3)] * 2], [DEPTH])


def test_a_neighbour_differs_in_one_or_two_dimensions_and_by_little() -> None:
    config: Mapping[str, Value] = {"LR": 0.003, "DEPTH": 12, "LAYERS": 3, "DROPOUT": 0.25, "OPTIMIZER": "sgd"}
    seen = [Observation(config, -1.0)]
    near = [promoted(seen, SOME, Random(seed))[0].config for seed in range(400)]
    assert {sum(one[name] != config[name] for name in config) for one in near} == {1, 2}
    assert {name for one in near for name in config if one[name] != config[name]} == set(config)
    assert {one["LAYERS"] for one in near} == {2, 3, 4}
    assert all(abs(math.log10(float(one["LR"]) / 0.003)) <= 0.31 for one in near)
    assert 0.02 < fmean(one["OPTIMIZER"] != "sgd" for one in near) < 0.3


def test_thompson_beats_random_search_at_equal_budget_and_finds_the_category() -> None:
    learned, blind = ([searched(how, bowl, 120, n)[60:] for n in range(8)] for how in (THOMPSON, None))

    def mean(found: Sequence[Sequence[Observation]]) -> float:
        return fmean(o.value for seen in found for o in seen if o.value is not None)

    assert mean(learned) < 0.5 * mean(blind)
    assert fmean(o.config["OPTIMIZER"] == "lion" for seen in learned for o in seen) > 0.8
