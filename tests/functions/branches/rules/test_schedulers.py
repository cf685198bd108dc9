"""Trace schedulers: fair turns, chance that replays, and no crash that is worth more than a success."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from functions.branches.rules.schedulers import (
    LEAST_WEIGHT,
    SCHEDULERS,
    ForestView,
    Ranked,
    Softmax,
    TraceScheduler,
    TraceView,
    checked_params,
    drawn,
    ranking,
    turn_taken,
)
from state.errors import Conflict, Invalid

SCORES = st.none() | st.floats(-1e100, 1e100)
DRAWN = 0.40744064036620486
EVERY = pytest.mark.parametrize("name", SCHEDULERS)
FEW = settings(max_examples=20)
"""Whole forests take long to draw."""


def trace(number: int, scores: Sequence[float | None] = (), **more: Any) -> TraceView:
    """A trace with these committed nodes."""
    known = [s for s in scores if s is not None]
    counts = {"length": len(scores), "children": len(scores)}
    view = TraceView(
        f"t{number}", number, **counts, scores=tuple(scores), best_score=min(known, default=None)
    )
    return replace(view, **more)


@st.composite
def forests(draw: st.DrawFn) -> ForestView:
    """Traces of any history."""
    histories = draw(st.lists(st.lists(SCORES, max_size=6), min_size=1, max_size=7))
    traces = [
        trace(
            number,
            scores,
            in_flight=draw(st.integers(0, 3)),
            kept=draw(st.integers(0, 5)),
            virtual_time=draw(st.integers(0, 3)),
        )
        for number, scores in enumerate(histories)
    ]
    return ForestView("mar11", draw(st.integers(1, 1000)), traces, virtual_time=draw(st.integers(0, 3)))


def select(forest: ForestView, trace_id: str) -> ForestView:
    """The forest after a selection of this trace."""
    chosen = next(t for t in forest.traces if t.trace_id == trace_id)
    own, whole = turn_taken(chosen, forest)
    after = replace(chosen, virtual_time=own, last_selected=forest.select_seq, in_flight=chosen.in_flight + 1)
    traces = [after if t is chosen else t for t in forest.traces]
    return replace(forest, select_seq=forest.select_seq + 1, virtual_time=whole, traces=traces)


def first(name: str, forest: ForestView) -> str:
    return SCHEDULERS[name].rank(forest)[0].trace_id


@given(st.integers(1, 9), st.integers(1, 60))
def test_by_turns_every_trace_has_the_same_number_of_selections_after_any_prefix(k: int, n: int) -> None:
    forest = ForestView("mar11", 1, [trace(number) for number in range(k)])
    picks = Counter[str]({t.trace_id: 0 for t in forest.traces})
    for made in range(1, n + 1):
        chosen = first("round_robin", forest)
        forest = select(forest, chosen)
        picks[chosen] += 1
        assert set(picks.values()) <= {made // k, math.ceil(made / k)}


def picked(name: str, forest: ForestView, n: int) -> list[str]:
    """The traces of the next selections."""
    picks = []
    for _ in range(n):
        picks.append(first(name, forest))
        forest = select(forest, picks[-1])
    return picks


def test_a_trace_that_was_away_neither_makes_up_for_its_turns_nor_waits_for_those_it_had() -> None:
    forest = ForestView("mar11", 1, [trace(0), trace(1)])
    for _ in range(10):
        forest = select(forest, "t0")
    assert picked("round_robin", forest, 4) == ["t1", "t0", "t1", "t0"]


def test_the_highest_priority_comes_first_and_equal_ones_take_turns() -> None:
    forest = ForestView("mar11", 1, [trace(0), trace(1, [None], priority=1.0), trace(2, [0.9], priority=1.0)])
    assert picked("priority", forest, 4) == ["t1", "t2", "t1", "t2"]


def test_of_traces_that_were_away_the_one_not_selected_for_longest_comes_first() -> None:
    traces = [
        trace(0, virtual_time=2, last_selected=8),
        trace(1, virtual_time=4, last_selected=3),
        trace(2, virtual_time=9, last_selected=1),
    ]
    ranked = SCHEDULERS["round_robin"].rank(ForestView("mar11", 9, traces, virtual_time=6))
    assert [r.trace_id for r in ranked] == ["t1", "t0", "t2"]


@EVERY
@FEW
@given(forests(), st.randoms())
def test_every_trace_has_one_place_and_the_same_log_replays_the_same_selections(
    name: str, forest: ForestView, chance: Random
) -> None:
    ranked, listed = ranking(name, SCHEDULERS[name], forest), list(forest.traces)
    assert {r.trace_id for r in ranked} == {t.trace_id for t in listed}
    assert len(ranked) == len(listed)
    assert all(r.score is None or math.isfinite(r.score) for r in ranked)
    chance.shuffle(listed)
    assert SCHEDULERS[name].rank(replace(forest, traces=listed)) == ranked


@EVERY
def test_equal_traces_have_equal_scores(name: str) -> None:
    histories: list[list[float | None]] = [[], [None], [0.97], [0.97, 0.97, None]]
    for scores, k in product(histories, (1, 2, 5)):
        forest = ForestView("mar11", 1, [trace(number, scores) for number in range(k)])
        assert len({r.score for r in ranking(name, SCHEDULERS[name], forest)}) == 1


def test_chance_is_the_same_in_every_process_and_of_its_own_for_every_selection() -> None:
    forest = ForestView("mar11", 7, [])
    numbers = [drawn(replace(forest, select_seq=n), "t1") for n in range(1000)]
    assert drawn(forest, "t1") == DRAWN
    assert 0 < min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1
    assert len(set(numbers)) == 1000


@pytest.mark.parametrize("name", ["weighted", "softmax", "uct"])
@FEW
@given(forests(), st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=4), st.integers(0, 4))
def test_a_trace_that_crashed_is_never_worth_more_than_one_that_succeeded(
    name: str, others: ForestView, successes: list[float], kept: int
) -> None:
    crashed = trace(50, [None] * len(successes))
    succeeded = trace(51, successes, kept=min(kept, len(successes)))
    ranked = SCHEDULERS[name].rank(replace(others, traces=[*others.traces, crashed, succeeded]))
    scores = {r.trace_id: r.score or 0.0 for r in ranked}
    assert scores["t50"] <= scores["t51"]


def test_weighted_goes_by_how_far_a_trace_lies_above_the_median_over_its_visits() -> None:
    traces = [
        trace(0, [0.98, 0.96], in_flight=1),  # the best: two deviations above the median
        *(trace(1, [0.98]), trace(2, [0.99, None]), trace(3, [0.97, 0.99, 0.99])),
        *(trace(4, [2.0]), trace(5, [None]), trace(6)),  # far off, crashed, empty
    ]
    forest = ForestView("mar11", 1, traces)

    weights = {r.trace_id: r.score for r in SCHEDULERS["weighted"].rank(forest)}

    def sigmoid(z: float) -> float:
        return 1 / (1 + math.exp(-z))

    expected = [sigmoid(2) / 4, sigmoid(0) / 2, sigmoid(-1) / 3, sigmoid(1) / 4]
    expected += [LEAST_WEIGHT / 2, LEAST_WEIGHT / 2, 0.5]
    assert [weights[f"t{n}"] for n in range(7)] == pytest.approx(expected)


def test_weighted_still_tells_the_better_trace_where_most_are_equal() -> None:
    forest = ForestView("mar11", 1, [trace(0, [0.97]), trace(1, [0.96]), trace(2, [0.97]), trace(3, [0.97])])
    assert first("weighted", forest) == "t1"


@FEW
@given(forests(), st.floats(0.001, 1), st.floats(-100, 100), st.floats(0, 100), st.floats(0.01, 100))
def test_under_softmax_no_trace_has_less_than_its_floor(
    forest: ForestView, eps: float, length: float, kept: float, temperature: float
) -> None:
    params = {"eps": eps, "length": length, "kept": kept, "random": 1.0, "temperature": temperature}
    shares = Softmax().shares(replace(forest, params=params))
    assert math.fsum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) >= eps / len(forest.traces)


def test_softmax_draws_traces_as_often_as_their_shares_say_among_the_free_ones_too() -> None:
    forest = ForestView("mar11", 0, [trace(0, kept=0), trace(1, kept=1), trace(2, kept=4)])
    shares = Softmax().shares(forest)

    orders = [
        [r.trace_id for r in SCHEDULERS["softmax"].rank(replace(forest, select_seq=n))] for n in range(4000)
    ]

    led = Counter(order[0] for order in orders)
    free = Counter(next(name for name in order if name != "t2") for order in orders)
    assert led["t2"] / 4000 == pytest.approx(shares["t2"], abs=0.03)
    assert free["t1"] / 4000 == pytest.approx(shares["t1"] / (shares["t0"] + shares["t1"]), abs=0.03)


@pytest.mark.parametrize(("length", "expected"), [(50.0, "t2"), (-50.0, "t0")])
def test_softmax_can_prefer_long_traces_or_short_ones(length: float, expected: str) -> None:
    traces = [trace(0, [1.0]), trace(1, [1.0] * 2), trace(2, [1.0] * 3)]
    params = {"length": length, "kept": 0.0, "eps": 0.001}
    shares = Softmax().shares(ForestView("mar11", 1, traces, params=params))
    assert shares[expected] > 0.99


def test_uct_adds_what_a_trace_earned_and_what_it_may_hide() -> None:
    forest = ForestView("mar11", 1, [trace(0, [0.96, None], in_flight=1), trace(1, [0.97]), trace(2)])
    ranked = SCHEDULERS["uct"].rank(replace(forest, params={"c": 0.5}))
    # Of the two other nodes 0.96 beats both, 0.97 one, the crash none; three are committed and one is open.
    visits = {"t0": 4, "t1": 2, "t2": 1}
    expected = {name: 1 / 2 + 0.5 * math.sqrt(math.log(5) / n) for name, n in visits.items()}
    assert {r.trace_id: r.score for r in ranked} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "params", "problem", "remedy"),
    [
        ("uct", {"C": 1.0}, "no parameter 'C'", "c (0 to 100)"),
        ("uct", {"c": -0.1}, "'c' of the scheduler 'uct' is -0.1", "c (0 to 100)"),
        ("softmax", {"kept": -1.0}, "'kept'", "kept (0 to 100)"),
        ("softmax", {"eps": math.nan}, "nan", "eps (0.001 to 1)"),
        ("round_robin", {"c": 1.0}, "no parameter 'c'", "empty"),
    ],
)
def test_a_wrong_parameter_is_refused(name: str, params: dict[str, float], problem: str, remedy: str) -> None:
    with pytest.raises(Invalid, match=problem) as refused:
        checked_params(name, SCHEDULERS[name], params)
    assert remedy in (refused.value.hint or "")
    usual = {"length": 0.0, "kept": 1.0, "random": 0.0, "temperature": 1.0, "eps": 1.0}
    assert checked_params("softmax", SCHEDULERS["softmax"], {"eps": 1}) == usual


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("return [Ranked('t0', None)]", "not every trace once"),
        ("return [Ranked('t0', None), Ranked('t0', None)]", "not every trace once"),
        ("return [Ranked('t0', None), Ranked('t1', None), Ranked('t9', None)]", "not every trace once"),
        ("return [Ranked(None, 1.0), Ranked('t1', 1.0)]", "not every trace once"),
        ("return [Ranked('t0', math.nan), Ranked('t1', 1.0)]", "not a finite number"),
        ("return [Ranked('t0', 'high'), Ranked('t1', 'low')]", "TypeError"),
        ("return ['t0', 't1']", "AttributeError"),
        ("return None", "TypeError"),
        ("raise KeyError('loss')", "KeyError: 'loss'"),
    ],
)
def test_a_plug_in_that_fails_or_ranks_other_traces_is_not_believed(answer: str, problem: str) -> None:
    known: dict[str, Any] = {"TraceScheduler": TraceScheduler, "Ranked": Ranked, "math": math}
    exec(f"class Mine(TraceScheduler):\n    def rank(self, forest):\n        {answer}", known)
    with pytest.raises(Conflict, match=problem) as refused:
        ranking("mine:Mine", known["Mine"](), ForestView("mar11", 1, [trace(0), trace(1)]))
    assert refused.value.fields["code"] == "broken_scheduler"
    assert "trace/configure" in (refused.value.hint or "")
