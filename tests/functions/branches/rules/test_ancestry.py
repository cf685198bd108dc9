"""Contexts: what an experiment is made from depends on its parents' ids alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from functions.branches.rules.ancestry import BranchHistory, Siblings, branch, siblings, unread
from functions.branches.rules.forest import Vitals, after_commit, death, ended_by_merge, next_start
from functions.experiments.rules.verdict import Key
from state.records import Direction, Experiment
from tests.functions.sample import experiment

Forest = dict[str, Experiment]
MAIN = Key()
FEW = settings(max_examples=30)
"""Whole graphs take long to draw."""


def node(number: int, parents: Sequence[int] = (), value: float | None = None, **more: object) -> Experiment:
    """A finished experiment: kept unless said otherwise, a crash without a value."""
    status = {"status": "keep" if value is not None else "crash", "val_bpb": value, "finish_number": number}
    return experiment(number, parent_ids=[f"mar11-{n}" for n in parents], **(status | more))


def graph(*nodes: Experiment) -> Forest:
    return {e.experiment_id: e for e in nodes}


def numbers(experiments: Sequence[Experiment]) -> list[int]:
    return [e.number for e in experiments]


def under(known: Forest, *parents: int, **more: int) -> BranchHistory:
    return branch([f"mar11-{n}" for n in parents], known, "minimize", MAIN, **more)


DISCARD = {"status": "discard"}
# Two branches from one root; 7 merges them. 8 is a root of its own.
DIAMOND = graph(
    node(1, value=1.00),
    node(2, [1], 0.98),
    node(3, [1], 0.99, **DISCARD),
    node(4, [3], 0.97),
    node(5, [2]),
    node(6, [4], 0.975, **DISCARD),
    node(7, [5, 6], 0.965),
    node(8, value=0.96),
)


@st.composite
def graphs(draw: st.DrawFn) -> Forest:
    """Experiments whose parents are any earlier ones, some still open."""
    made = []
    for number in range(1, draw(st.integers(2, 12)) + 1):
        earlier = st.sets(st.integers(1, number - 1), max_size=3) if number > 1 else st.just(set[int]())
        status = draw(st.sampled_from(["keep", "discard", "crash", "timeout", "running", "lost"]))
        value = draw(st.floats(0.9, 1.1)) if status in ("keep", "discard") else None
        made.append(node(number, sorted(draw(earlier)), value, status=status))
    return graph(*made)


def test_ancestors_stand_from_the_root_to_the_parents_each_once() -> None:
    assert numbers(under(DIAMOND, 7).ancestors) == [1, 2, 3, 4, 5, 6, 7]
    assert numbers(under(DIAMOND, 6).ancestors) == [1, 3, 4, 6]
    assert under(DIAMOND) == BranchHistory([], [], [], None, None)


def test_a_branch_is_built_on_its_best_keep_not_on_its_newest() -> None:
    known = graph(node(1, value=0.98), node(2, [1], 0.97), node(3, [2], 0.975), node(4, [3], 0.96, **DISCARD))
    made = under(known, 4)
    assert (made.base, made.best) == (known["mar11-2"], known["mar11-4"])


def test_failures_are_those_that_nothing_kept_was_built_on_since() -> None:
    broken = under(graph(node(1, error_kind="infra"), node(2, [1], error_kind="oom")), 2)
    assert (numbers(broken.ancestors), numbers(broken.failures)) == ([1, 2], [2])
    assert numbers(under(DIAMOND, 6).failures) == [6]
    assert numbers(under(DIAMOND, 5, 6).failures) == [5, 6]
    assert numbers(under(DIAMOND, 5, 6, max_failed=1).failures) == [6]
    assert numbers(under(DIAMOND, 7).failures) == []
    assert numbers(under(DIAMOND, 3).failures) == [3]


@pytest.mark.parametrize(("most", "expected"), [(0, []), (2, [4, 7]), (9, [1, 2, 4, 7])])
def test_no_more_keeps_are_shown_than_asked_for_the_newest_ones(most: int, expected: list[int]) -> None:
    made = under(DIAMOND, 7, max_keep=most)
    assert numbers(made.kept) == expected
    assert made.base == DIAMOND["mar11-7"]


def test_what_cannot_be_compared_is_neither_base_nor_best() -> None:
    known = graph(
        node(1, value=0.98, gpu_class="H100"),
        node(2, [1], 0.90, gpu_class="A100"),
        node(3, [2], 0.91, gpu_class="A100", **DISCARD),
    )
    made = branch(["mar11-3"], known, "minimize", Key("H100"))
    assert made.base == made.best == known["mar11-1"]
    assert numbers(made.kept) == [1, 2]


@FEW
@given(graphs(), st.data())
def test_other_branches_change_nothing(known: Forest, data: st.DataObject) -> None:
    parents = data.draw(st.sets(st.sampled_from(sorted(known))))
    before = branch(sorted(parents), known, "minimize", MAIN)
    mine = {e.experiment_id for e in before.ancestors}
    changed = {"status": "keep", "val_bpb": 0.1, "parent_ids": sorted(parents)}
    others = {i: e.model_copy(update=changed) for i, e in known.items() if i not in mine}
    assert branch(sorted(parents, reverse=True), known | others, "minimize", MAIN) == before


@FEW
@given(graphs(), st.data())
def test_read_as_asked_for_all_ancestors_and_no_others_are_known(lab: Forest, data: st.DataObject) -> None:
    parents = sorted(data.draw(st.sets(st.sampled_from(sorted(lab)))))
    known: Forest = {}
    while wanted := unread(parents, known):
        known |= {name: lab[name] for name in wanted}
    assert known == graph(*branch(parents, lab, "minimize", MAIN).ancestors)


def test_an_ancestor_that_is_not_known_is_no_silent_gap() -> None:
    with pytest.raises(KeyError, match="mar11-1"):
        branch(["mar11-2"], graph(node(2, [1], 0.9)), "minimize", MAIN)


@pytest.mark.parametrize(
    ("parents", "mode", "expected"),
    [
        ([], "root", [1, 8]),
        ([], "until_first_keep", [1, 8]),
        ([8], "root", []),
        ([8], "until_first_keep", []),
        ([8], "always", [1]),
        ([4], "always", [2, 6, 8]),
        ([], "never", []),
        ([4], "never", []),
    ],
)
def test_siblings_stand_beside_the_branch(parents: list[int], mode: Siblings, expected: list[int]) -> None:
    found = siblings(under(DIAMOND, *parents), DIAMOND.values(), mode)
    assert numbers(found) == expected


def test_until_something_of_the_branch_is_kept_it_is_shown_what_others_tried() -> None:
    known = graph(node(1), node(2, value=0.9), node(3, [1]), node(4, [1]), node(5, [2], 0.8))
    assert numbers(siblings(under(known, 3), known.values(), "until_first_keep")) == [2, 4]
    assert numbers(siblings(under(known, 3, max_keep=0), known.values(), "until_first_keep")) == [2, 4]


def test_siblings_whose_end_says_nothing_of_their_idea_are_left_out() -> None:
    known = graph(
        node(1, status="running"),
        node(2, status="lost"),
        node(3, status="timeout"),
        node(4, retest_of="mar11-3"),
        node(5, error_kind="infra"),
    )
    assert numbers(siblings(under(known), known.values(), "always")) == [3]


def test_what_a_selection_is_shown_stays_the_same_when_others_finish_after_it() -> None:
    late = node(9, value=0.5, finish_number=20)
    shown = siblings(under(DIAMOND, 4), DIAMOND.values(), "always", finished_until=8, most=2)
    again = siblings(under(DIAMOND, 4), [*DIAMOND.values(), late], "always", finished_until=8, most=2)
    assert numbers(again) == numbers(shown) == [6, 8]


def stood(scores: list[float | None]) -> Vitals:
    vitals = Vitals()
    for each in scores:
        vitals = after_commit(vitals, each)
    return vitals


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([None, None], None),
        ([None, None, None], "crashes"),
        ([0.9, None, None, 0.95, None], None),
        ([0.9, None, None, None], "crashes"),
        ([0.9, 0.91, 0.92, 0.93], None),
        ([0.9, 0.91, 0.9, None, 0.93, 0.9], "stale"),
        ([0.9, 0.91, 0.92, 0.93, 0.94, 0.89], None),
        ([], None),
    ],
)
def test_a_trace_dies_of_crashes_or_as_it_is_stale(scores: list[float | None], expected: str | None) -> None:
    assert death(stood(scores), dead_after_crashes=3, stale_after=5) == expected


def test_sources_end_with_a_kept_merge_unless_they_have_grown() -> None:
    selected, tips = {"t1": "mar11-4", "t2": "mar11-5"}, {"t1": "mar11-4", "t2": "mar11-9", "t3": "mar11-5"}
    assert ended_by_merge(selected, tips, goes_on=True) == ["t1"]
    assert ended_by_merge(selected, tips, goes_on=False) == []
    assert ended_by_merge(selected, {}, goes_on=True) == []


@pytest.mark.parametrize(
    ("direction", "built_on", "expected"),
    [("minimize", {1, 4}, 2), ("maximize", {1, 4}, 3), ("minimize", {1, 2, 3, 4}, None)],
)
def test_the_next_trace_starts_from_the_best_keep_that_nobody_builds_on_or_from_a_new_root(
    direction: Direction, built_on: set[int], expected: int | None
) -> None:
    kept = [experiment(n, status="keep", val_bpb=v) for n, v in [(1, 0.8), (2, 0.97), (3, 0.98), (4, 1.2)]]
    start = next_start(kept, {f"mar11-{n}" for n in built_on}, direction, Key())
    assert start == (None if expected is None else kept[expected - 1])
