"""Which reference run a waiting run is compared with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from functions.beliefs.rules.evidence import PATIENCE, Pair, pairs
from functions.beliefs.rules.terms import FinishedRun
from state.records import Evidence
from tests.functions.beliefs.rules.sample import REFERENCE, hypothesis, influence, reference, run

NAMES = st.sampled_from(["w1", "w2", "w3", "w4"])


def named(found: list[Pair]) -> list[tuple[str, str]]:
    return [(one.experiment_id, other.experiment_id) for one, other in found]


def crowd(n: int) -> list[FinishedRun]:
    """A run each of so many workers."""
    return [run(f"c{k}", worker_id=f"w{k}") for k in range(n)]


def test_a_run_is_compared_with_the_oldest_reference_run_of_its_own_worker() -> None:
    waiting = [run("c1", worker_id="w1"), run("c2", worker_id="w2"), run("c3", worker_id="w2")]
    unused = [reference(f"r{n}", worker_id=worker) for n, worker in enumerate(("w2", "w3", "w2"), 1)]
    assert named(pairs(waiting, unused, hypothesis())) == [("c2", "r1"), ("c3", "r3")]


def test_runs_under_other_conditions_are_not_compared() -> None:
    others = [reference("r1", key="600 s"), reference("r2", config={**REFERENCE, "ADDED_LATER": 2})]
    assert pairs([run("c1")], others, hypothesis()) == []


def test_where_many_wait_the_oldest_are_compared_with_runs_of_other_workers() -> None:
    """An influence wins by distance, to either side: two baselines that are wrong would be one."""
    unused = [reference(f"r{k}", worker_id=f"v{k}") for k in range(9)]
    assert pairs(crowd(PATIENCE), unused, hypothesis()) == []
    assert named(pairs(crowd(PATIENCE + 2), unused, hypothesis())) == [("c0", "r0"), ("c1", "r1")]
    assert pairs(crowd(PATIENCE + 2), unused, influence()) == []


def test_each_worker_is_in_one_pair_across_workers_among_the_newest_evidence() -> None:
    crossed = Evidence(
        experiment_id="c", outcome=1.0, against="reference", worker_id="w0", reference_worker_id="v0"
    )
    unused = [reference(f"r{k}", worker_id=name) for k, name in enumerate(["v0", "v1", "v1", "v2"])]
    found = pairs(crowd(PATIENCE + 4), unused, hypothesis(evidence=[crossed]))
    assert named(found) == [("c1", "r1"), ("c2", "r3")]


@given(mine=st.lists(NAMES, max_size=30), others=st.lists(NAMES, max_size=30))
def test_no_run_is_used_twice_and_no_worker_with_both_is_left(mine: list[str], others: list[str]) -> None:
    waiting = [run(f"c{k}", worker_id=name) for k, name in enumerate(mine)]
    unused = [reference(f"r{k}", worker_id=name) for k, name in enumerate(others)]

    found = pairs(waiting, unused, hypothesis())

    used = [each.experiment_id for pair in found for each in pair]
    assert len(used) == len(set(used))
    left = {r.worker_id for r in waiting if r.experiment_id not in used}
    assert left.isdisjoint(r.worker_id for r in unused if r.experiment_id not in used)
    for name in set(mine):
        within = sum(one.worker_id == other.worker_id == name for one, other in found)
        assert within == min(mine.count(name), others.count(name))
