"""When a keep may be tried at a longer budget, and which label it gets there."""

from __future__ import annotations

from typing import Any

import pytest

from functions.formats.constants import lengthened
from functions.trust.rules.transferring import MOST_PAIRS, certificate_of, ended, judged, planned, why_not
from state.errors import Conflict, Invalid
from state.records import Certificate, CertificatePair, Direction, Experiment, Tag, Transfer
from tests.functions.sample import experiment


def tag(direction: Direction = "minimize") -> Tag:
    return Tag(name="m", branch="m", created_at=0.0, direction=direction)


def run(number: int, value: float | None, **fields: Any) -> Experiment:
    measured = {
        "val_bpb": value,
        "gpu_class": "H100",
        "budget_s": 300.0,
        "budget_seconds": 300.0,
        "attempt": 1,
    }
    own = {"experiment_id": f"m-{number}", "tag": "m", "commit_sha": "abc1234"}
    return experiment(number, **{"status": "keep", **own, **measured, **fields})


def plan(budget: str = "4x", before: list[Transfer] | None = None, **fields: Any) -> Transfer:
    return planned(run(2, 0.9, **fields), run(1, 1.0), tag(), budget, before or [], "m-transfer1")


@pytest.mark.parametrize(("budget", "seconds"), [("4x", 1200), ("1.5x", 450), ("1200", 1200), ("301", 301)])
def test_a_budget_is_a_multiple_of_the_keep_s_own_or_seconds(budget: str, seconds: float) -> None:
    one = plan(budget)
    assert (one.budget_s, one.own_budget_s, one.most_runs) == (seconds, 300, 2 * MOST_PAIRS)
    assert one.gain == pytest.approx(0.1)


@pytest.mark.parametrize("budget", ["1x", "0.5x", "300", "0", "604801", "9999x"])
def test_a_budget_that_is_not_longer_or_beyond_any_run_is_refused(budget: str) -> None:
    with pytest.raises(Invalid, match="is not a longer budget"):
        plan(budget)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"status": "discard"}, "is a discard"),
        ({"status": "crash", "val_bpb": None}, "is crash"),
        ({"status": "running", "val_bpb": None}, "is running"),
        ({"status": "retracted"}, "is retracted"),
        ({"status": "measured", "retest_of": "m-1"}, "is a retest itself"),
        ({"worker_id": "w"}, "was not measured by a worker of this lab"),
        ({"attempt": 0}, "was not trained by a worker of this lab"),
        ({"gpu_class": "L4"}, "measured under other conditions"),
        ({"tag": "other"}, "two experiments of one tag"),
        ({"experiment_id": "m-1"}, "two experiments of one tag"),
    ],
)
def test_only_a_keep_that_can_be_run_beside_its_reference_is_tried(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(Conflict, match=said):
        plan(**fields)


def test_asked_again_it_is_the_same_unless_it_was_inconclusive_or_something_else_is_asked() -> None:
    begun = plan().model_copy(update={"state": "running"})
    assert plan(before=[begun]) == begun
    assert plan("1200", before=[begun]) == begun
    assert plan("8x", before=[begun]).state == "planned"
    assert plan(before=[ended(begun, "it crashed")]).state == "planned"


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        ({"wall_seconds": 1210.0}, None),
        ({"wall_seconds": None}, None),
        ({"wall_seconds": 1210.0, "status": "discard"}, None),
        ({"wall_seconds": 320.0}, "trained 320 s of 1.2e+03 s|trained 320 s of 1200 s"),
        ({"status": "crash", "val_bpb": None, "error_kind": "oom"}, "m-2: oom"),
        ({"over_budget": True}, "m-2: over its budget"),
        ({"guard": "peak_vram_mb"}, "m-2: guard peak_vram_mb"),
        ({"gpu_class": "L4"}, "other conditions"),
    ],
)
def test_first_runs_are_a_pair_if_both_used_the_budget(candidate: dict[str, Any], said: str | None) -> None:
    found = why_not(plan(), run(2, 0.9, **candidate), run(1, 1.0, wall_seconds=1205.0))
    assert (found is None) == (said is None)
    assert said is None or any(part in (found or "") for part in said.split("|"))


def certificate(direction: Direction, *values: tuple[float, float], state: str = "running") -> Certificate:
    first = certificate_of(plan(), run(2, values[0][0]), run(1, values[0][1]), tag(direction))
    pairs = [
        CertificatePair(first="candidate", candidate=f"m-2.{n}", reference=f"m-1.{n}", measured=both)
        for n, both in enumerate(values[1:], 2)
    ]
    return first.model_copy(update={"pairs": (*first.pairs, *pairs), "state": state})


def test_the_label_is_the_verdict_of_the_pairs_in_the_metric_s_direction() -> None:
    for state, label in (
        ("running", "running"),
        ("certified", "transfers"),
        ("refused", "bound to its budget"),
    ):
        found = judged(plan(), certificate("minimize", (0.9, 1.0), (0.9, 0.94), state=state))
        assert (found.state, found.pairs) == (label, 2)
        assert found.longer_gain == pytest.approx(0.07)
    one = planned(run(2, 0.9), run(1, 0.8), tag("maximize"), "4x", [], "into")
    assert one.gain == pytest.approx(0.1)
    assert judged(one, certificate("maximize", (0.9, 0.8))).longer_gain == pytest.approx(0.1)


def test_constants_that_hold_the_budget_are_lengthened_and_no_others() -> None:
    source = (
        "TIME_BUDGET = 300\nTOTAL_WALL_CLOCK_TIME: float = 2.5\nMAX_TIME_S = 60 * 5\nLR = 0.1\nTIMEOUT = None\n"
        "TIME_LIMIT = 3\nTIME_LIMIT = other()\n"
    )

    assert lengthened(source, {}, 4.0) == {
        "TIME_BUDGET": 1200,
        "TOTAL_WALL_CLOCK_TIME": 10.0,
        "MAX_TIME_S": 1200,
    }
    assert lengthened("TIME_BUDGET = 300\n", {"TIME_BUDGET": 200, "LR": 1}, 1.5) == {"TIME_BUDGET": 300}
    assert lengthened("time_budget = 5\n", {}, 1.5) == {"time_budget": 7.5}
