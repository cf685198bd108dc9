"""What a finished run says of a hypothesis."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.beliefs.rules.evidence import PATIENCE, Pair, honours, is_outside, outcome_of, pairs, part_of
from functions.beliefs.rules.terms import BeliefTerms, FinishedRun, Survivors, band_of
from state.records import Evidence
from tests.functions.beliefs.rules.sample import REFERENCE, hypothesis, influence, pair, reference, run

MATCHED, BASELINE = BeliefTerms(sigma=0.01, workers=5), BeliefTerms("baseline", sigma=0.01, workers=5)
HIGH = hypothesis(config_constraint={"LR": {"min": 0.005}}, dimensions=[])


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({}, "candidate"),
        ({"strategy": "falsify"}, "candidate"),
        ({"hypothesis_id": "hyp_2"}, "candidate"),
        ({"config": REFERENCE}, "reference"),
        ({"config": {**REFERENCE, "LR": 0.01, "DEPTH": 12}}, "none"),
        ({"config": {**REFERENCE, "DEPTH": 12}}, "none"),
        ({"config": {"LR": 0.01, "DEPTH": 8}}, "none"),
        ({"config": {**REFERENCE, "LR": 0.01, "ADDED_LATER": 3}}, "candidate"),
        ({"ended": "crash", "judged": None}, "candidate"),
        ({"ended": "stopped", "judged": None}, "counts"),
        ({"ended": "stopped", "judged": None, "config": REFERENCE}, "none"),
        ({"ended": "failed", "judged": None}, "none"),
        ({"strategy": "exploit"}, "counts"),
        ({"strategy": "exploit", "config": {**REFERENCE, "LR": 0.01, "DEPTH": 12}}, "counts"),
        ({"strategy": "exploit", "config": {**REFERENCE, "DEPTH": 12}}, "none"),
        ({"strategy": "converge", "hypothesis_id": "hyp_2"}, "none"),
    ],
)
def test_a_matched_claim_is_judged_by_runs_of_its_dimensions_only(changes: dict[str, Any], part: str) -> None:
    assert part_of(run(**changes), influence(), MATCHED) == part


@pytest.mark.parametrize(
    ("lr", "part"), [(0.01, "candidate"), (0.005, "candidate"), (0.002, "none"), (0.001, "reference")]
)
def test_a_run_that_does_not_honour_the_constraint_says_nothing_of_the_claim(lr: float, part: str) -> None:
    made = run(config={**REFERENCE, "LR": lr})
    assert part_of(made, HIGH, MATCHED) == part
    assert is_outside(made, HIGH) is (lr < 0.005)


@pytest.mark.parametrize(
    "changes", [{"phase": "validation"}, {"settled": "refuted"}, {"settled": "irrelevant"}]
)
def test_a_claim_under_test_or_archived_learns_from_no_single_run(changes: dict[str, Any]) -> None:
    assert part_of(run(), hypothesis(**changes), MATCHED) == "none"
    assert part_of(run(), hypothesis(settled="supported"), MATCHED) == "candidate"


@pytest.mark.parametrize(
    ("mine", "others", "outcome", "against", "contrast"),
    [
        (-0.02, 0.0, 1.0, "reference", -0.02),
        (0.5, 0.75, 1.0, "reference", -0.25),
        (0.75, 0.5, 0.0, "reference", 0.25),
        (0.5, 0.5, None, "reference", 0.0),
        (None, 0.5, 0.0, "crash", None),
        (0.5, None, 1.0, "reference", None),
    ],
)
def test_the_lower_value_of_a_pair_wins_and_a_crash_is_worse_than_any(
    mine: float | None, others: float | None, outcome: float | None, against: str, contrast: float | None
) -> None:
    candidate = run(ended="crash" if mine is None else "value", judged=mine)
    other = reference(ended="crash" if others is None else "value", judged=others)
    said = outcome_of(candidate, hypothesis(), MATCHED, other)
    assert said is not None
    assert (said.outcome, said.against, said.contrast, said.delta) == (outcome, against, contrast, mine)
    assert (said.reference_id, said.is_guarded) == ("swarm-2", True)


CRASHED: dict[str, Any] = {"ended": "crash", "judged": None}


def test_an_influence_shows_by_distance_to_either_side_and_by_no_crash() -> None:
    known = BeliefTerms(sigma=0.01, usual_distance=0.015)

    for judged, outcome in ((-0.03, 1.0), (0.03, 1.0), (-0.01, 0.0), (0.0, 0.0)):
        said = outcome_of(run(judged=judged), influence(), known, reference())
        assert said is not None
        assert (said.outcome, said.contrast) == (outcome, judged)
    unknown = outcome_of(run(judged=-0.5), influence(), BeliefTerms(), reference())  # the noise is unknown
    assert unknown is not None
    assert (unknown.outcome, unknown.contrast) == (None, -0.5)
    assert outcome_of(run(**CRASHED), influence(), known, reference()) is None
    assert outcome_of(run(), influence(), known, reference(**CRASHED)) is None


def test_two_crashes_say_nothing_and_a_candidate_waits_for_its_reference_run() -> None:
    assert outcome_of(run(**CRASHED), hypothesis(), MATCHED, reference(**CRASHED)) is None
    assert outcome_of(run(), hypothesis(), MATCHED) is None
    assert outcome_of(reference(), hypothesis(), MATCHED) is None


def test_runs_that_look_for_the_best_config_move_the_effect_alone() -> None:
    alone: dict[str, Any] = {"against": "baseline", "is_guarded": False, "delta": -0.01, "outcome": None}
    said = Evidence(experiment_id="swarm-1", worker_id="w1", **alone)
    assert outcome_of(run(strategy="exploit"), HIGH, MATCHED) == said
    assert outcome_of(run(strategy="exploit", **CRASHED), HIGH, MATCHED) is None
    assert outcome_of(run(strategy="exploit", ended="stopped", judged=None), HIGH, MATCHED) is None


@pytest.mark.parametrize(
    ("claim", "changes", "outcome"),
    [
        (hypothesis(), {"config": {**REFERENCE, "LR": 0.01, "DEPTH": 12}}, 1.0),
        (influence(), {"config": {**REFERENCE, "DEPTH": 12}}, None),
        (HIGH, {"hypothesis_id": "hyp_2"}, 1.0),
        (HIGH, {"ended": "crash", "judged": None}, 0.0),
        (influence(), {"ended": "crash", "judged": None}, None),
    ],
)
def test_under_the_policy_baseline_each_run_counts_for_every_claim_that_it_bears_on(
    claim: Any, changes: dict[str, Any], outcome: float | None
) -> None:
    said = outcome_of(run(**changes), claim, BASELINE)
    assert (said.outcome if said else None) == outcome
    assert said is None or said.is_guarded


def test_a_stopped_run_counts_for_the_share_of_those_that_were_let_go_on() -> None:
    stopped = run(ended="stopped", judged=None)
    alike = run(ended="stopped", judged=None, survivors=Survivors(wins=0.3, weight=1.5))

    for made, share in ((stopped, 0.25), (alike, 0.2125)):
        said = outcome_of(made, hypothesis(), MATCHED)
        assert said is not None
        assert said.outcome == pytest.approx(share)
        assert outcome_of(made, influence(), MATCHED) is None
        assert (said.against, said.is_guarded) == ("stopped", True)
    assert [band_of(rank) for rank in (0.0, 16.6, 16.7, 33.3, 33.4, 100.0)] == [0, 0, 1, 1, 2, 5]


def test_a_run_that_was_let_go_on_stands_for_those_that_were_not() -> None:
    known = Survivors().with_(1.0, chance=0.5).with_(0.0, chance=0.6).with_(0.5, chance=0.0)
    assert [known.wins, known.weight] == pytest.approx([1.0, 2.5])
    assert Survivors(wins=300.0, weight=1000.0).share == pytest.approx(0.3, abs=1e-3)


def test_beside_baselines_one_run_of_each_worker_enters_the_e_values() -> None:
    def guarded(*evidence: Evidence) -> bool:
        said = outcome_of(run(), hypothesis(evidence=list(evidence)), BeliefTerms("baseline", workers=1))
        assert said is not None
        return said.is_guarded

    mine = Evidence(experiment_id="m", outcome=1.0, against="baseline", worker_id="w1")

    assert guarded()
    assert guarded(mine.model_copy(update={"worker_id": "w2"}), mine.model_copy(update={"is_guarded": False}))
    assert not guarded(mine)


def test_one_worker_can_be_no_more_than_a_fifth_of_what_is_compared_with_baselines() -> None:
    def of(worker: str, n: int) -> list[Evidence]:
        plain = Evidence(experiment_id="m", outcome=1.0, against="baseline", worker_id=worker)
        return [plain] * n

    def says(evidence: list[Evidence], terms: BeliefTerms = BASELINE) -> bool:
        return outcome_of(run(), hypothesis(evidence=evidence), terms) is not None

    found = [
        says(of("w1", mine) + of("w2", others)) for mine, others in ((1, 0), (2, 0), (2, 7), (2, 8), (2, 9))
    ]
    assert found == [True, False, False, True, True]
    assert says([*of("w1", 2), pair(1.0)], BeliefTerms("baseline", workers=1))
    assert says([pair(1.0)] * 30)


@pytest.mark.parametrize(
    ("allowed", "value", "expected"),
    [
        (0.01, 0.01, True),
        (1, 1.0, True),
        (1, True, False),
        (["adam", "sgd"], "sgd", True),
        (["adam", "sgd"], "lion", False),
        ("adam", "adam", True),
        ({"min": 4}, 4, True),
        ({"min": 4, "max": 6}, 7, False),
        ({"max": 6}, "deep", False),
    ],
)
def test_a_config_honours_a_value_a_list_or_a_range(allowed: Any, value: Any, expected: bool) -> None:
    assert honours({"X": value}, {"X": allowed}) is expected
    assert not honours({}, {"X": allowed})


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
