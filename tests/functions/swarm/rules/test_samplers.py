"""Samplers learn from every kind of run, stay in their shape, and find more than chance; what dimensions explain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from functions.swarm.rules.dimensions import value_of
from functions.swarm.rules.gaussian_search import LEAST_RUNS, GaussianProcess, importances
from functions.swarm.rules.proposals import (
    LIMIT,
    AtRandom,
    ConfigProposal,
    ConfigSampler,
    History,
    Observation,
    canonical,
    promoted,
    scored,
    top_configs,
)
from functions.swarm.rules.rooms import room_of
from functions.swarm.rules.sampling import BUCKETS, Thompson, index_of, parts, sampler_of
from functions.swarm.rules.shapes import Shape, drawn_config, freedoms_of
from state.policy import Policy
from state.records import Dimension, Value
from tests.functions.swarm.rules.sample import (
    DEPTH,
    INVESTIGATE,
    LAYERS,
    LR,
    OPTIMIZER,
    RESULTS,
    SHAPES,
    SOME,
    bowl,
    by_optimizer,
    dimension,
    dimensions,
    runs,
    searched,
    share,
    swarms,
)

each = pytest.mark.parametrize("sampler", [Thompson(), GaussianProcess()], ids=["thompson", "model"])


def proposed(
    sampler: ConfigSampler, seen: History, dimensions: Sequence[Dimension] = SOME, n: int = 40, seed: int = 1
) -> list[ConfigProposal]:
    return sampler.propose(dimensions, seen, INVESTIGATE, n, Random(seed))


THOMPSON, MODEL = Thompson(), GaussianProcess()
of_thompson, of_model = partial(proposed, THOMPSON, n=200), partial(proposed, MODEL, n=8)


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
    first = [proposed(sampler, seen, [flag], n=1, seed=seed)[0] for seed in range(20)]
    assert sum(type(p.config["FLAG"]) is int for p in first) > 14


@each
def test_equal_results_teach_nothing_and_stop_nothing(sampler: ConfigSampler) -> None:
    proposals = proposed(sampler, runs([0.25] * 26))
    assert len({p.config["OPTIMIZER"] for p in proposals}) == 4
    assert len({p.config["LAYERS"] for p in proposals}) >= 4


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
    few = of_thompson(seen[:12])
    bad = of_thompson([o for o in seen if o.config["OPTIMIZER"] != "sgd"])
    assert share(few, "OPTIMIZER", "lion") > 0.02
    assert share(bad, "OPTIMIZER", "lion") > 0.1
    assert any("OPTIMIZER" in p.why for p in bad if p.config["OPTIMIZER"] == "lion")


def test_what_wins_in_a_batch_counts_as_run_at_the_overall_mean() -> None:
    others = ("adam", "sgd", "adafactor")
    seen = [Observation({"OPTIMIZER": name}, value) for name in others for value in (0.0, 0.1)]
    seen += [Observation({"OPTIMIZER": "lion"}, -9.0)] * 3
    alone = [of_thompson(seen, [OPTIMIZER], n=1, seed=seed)[0] for seed in range(60)]
    batch = of_thompson(seen, [OPTIMIZER], n=60)
    assert share(batch, "OPTIMIZER", "lion") < 0.9 < share(alone, "OPTIMIZER", "lion")


def test_a_pending_run_counts_as_the_mean_of_those_that_ended() -> None:
    seen = runs([0.0, 1.0, 5.0, None])
    scores = scored([*seen, Observation(seen[0].config, None, pending=True)])
    assert scores.each[-1] == scores.mean == pytest.approx(fmean(scores.each[:-1]))


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

    def mean(found: Sequence[History]) -> float:
        return fmean(o.value for seen in found for o in seen if o.value is not None)

    assert mean(learned) < 0.5 * mean(blind)
    assert fmean(o.config["OPTIMIZER"] == "lion" for seen in learned for o in seen) > 0.8


def learned(n: int = 60, seed: int = 3) -> list[Observation]:
    """Runs of configs at random."""
    rng = Random(seed)
    configs = [drawn_config(SOME, INVESTIGATE, rng) for _ in range(n)]
    return [Observation(config, bowl(config, rng)) for config in configs]


def mean_of(proposals: Sequence[ConfigProposal]) -> float:
    return fmean(bowl(p.config, Random(0), noise=0.0) for p in proposals)


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


@pytest.mark.parametrize("poison", [1e300, -1e300, 1.7e308, -1.7e308])
def test_a_poisoned_result_does_not_blind_the_model(poison: float) -> None:
    seen, rng = learned(), Random(5)
    worst = max(range(60), key=lambda n: seen[n].value or 0.0)
    seen[worst] = Observation(seen[worst].config, poison)
    misled = of_model(seen)
    after = of_model([*seen, *(Observation(p.config, bowl(p.config, rng)) for p in misled)])
    assert mean_of(after) < 0.5 * BLIND


def test_what_is_pending_or_in_the_same_batch_is_not_proposed_again() -> None:
    seen = learned()
    first = of_model(seen, n=1)[0].config
    values = [(layers, optimizer) for layers in range(1, 6) for optimizer in OPTIMIZER.categories or ()]
    few = [LAYERS, OPTIMIZER]
    small = [Observation({"LAYERS": a, "OPTIMIZER": b}, 0.1 * a) for a, b in values[:8]]
    best = of_model(small, few, n=1)[0].config

    again = of_model([*seen, *[Observation(first, None, pending=True)] * 3], n=1)[0].config
    other = of_model([*small, *[Observation(best, None, pending=True)] * 9], few, n=1)[0].config

    assert again != first
    assert other != best
    assert len({canonical(p.config) for p in of_model(small, few, n=12)}) == 12


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


A, B, C, D = (dimension(name, "float", min=0, max=1) for name in "ABCD")


def seen(
    dimensions: list[Dimension], value: Callable[[Mapping[str, Value]], float], n: int = 200
) -> list[Observation]:
    rng = Random(1)
    configs = [drawn_config(dimensions, INVESTIGATE, rng) for _ in range(n)]
    return [Observation(config, value(config) + rng.gauss(0, 0.01)) for config in configs]


def number(config: Mapping[str, Value], name: str) -> float:
    return float(config[name])


def test_effects_that_add_up_explain_their_shares_of_the_variance() -> None:
    found = importances([A, B, C], seen([A, B, C], lambda c: 2 * number(c, "A") + number(c, "B")))
    assert found["A"].importance == pytest.approx(0.8, abs=0.06)  # variances of 4 / 12 and 1 / 12
    assert found["B"].importance == pytest.approx(0.2, abs=0.06)
    assert found["C"].importance < 0.02
    assert all(each.interaction < 0.05 for each in found.values())


def test_a_dimension_names_those_that_it_interacts_with_the_strongest_first() -> None:
    def value(c: Mapping[str, Value]) -> float:
        a, b, c_ = (number(c, name) - 0.5 for name in "ABC")
        return a * b + 0.4 * b * c_ + 0.2 * (number(c, "D") - 0.5)

    found = importances([A, B, C, D], seen([A, B, C, D], value, 300))

    assert [*found["B"].interacts_with] == ["A", "C"]
    assert found["A"].interacts_with.keys() == {"B"}
    assert found["A"].importance < 0.1 < 0.5 < found["A"].interaction
    # variances of the products: 1 / 144 and 0.16 / 144; of D's effect: 0.04 / 12
    whole = (1 + 0.16 + 0.48) / 144
    assert found["B"].interacts_with["A"] == pytest.approx(1 / 144 / whole, abs=0.1)
    assert found["B"].interacts_with["C"] == pytest.approx(0.16 / 144 / whole, abs=0.06)
    assert not found["D"].interacts_with


def test_it_does_not_fall_because_the_search_has_converged() -> None:
    def bowl(c: Mapping[str, Value]) -> float:
        return (number(c, "A") - 0.3) ** 2 + 0.1 * number(c, "B")

    early = seen([A, B, C], bowl, 60)
    rng = Random(5)
    near = [{"A": 0.3 + rng.gauss(0, 0.01), "B": rng.random(), "C": rng.random()} for _ in range(300)]
    late = [Observation(config, bowl(config) + rng.gauss(0, 0.01)) for config in near]

    before, after = (importances([A, B, C], each)["A"].importance for each in (early, [*early, *late]))

    assert before > 0.7
    assert after > 0.7


def test_few_runs_say_nothing_and_equal_ones_that_nothing_matters() -> None:
    assert importances(SOME, runs([0.1 * n for n in range(LEAST_RUNS - 1)])) == {}
    assert all(
        each.importance == each.interaction == 0.0
        for each in importances(SOME, runs([0.25] * LEAST_RUNS)).values()
    )
