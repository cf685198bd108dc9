"""Rulings as a table: the step that retests make due, and what the step changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from functions.fold import CONTRADICTED
from functions.trust.rules.noise import Repeats, run_again, written
from functions.trust.rules.retests import Confirm, Demote, Dismiss, GiveUp, Promote, RunAgain, Step
from functions.trust.rules.retracting import link_of
from functions.trust.rules.ruling import Race
from state.decisions import Ruling
from state.facts import RaceFacts, Spread
from state.policy import Policy
from state.records import Best, Experiment, Tag
from tests.functions.sample import experiment

SIGMA = 0.001
OTHERS = Spread(50, 50 * SIGMA**2)
"""Noise of other code."""
TAG = Tag(name="mar11", branch="b", created_at=0.0)


@dataclass(frozen=True)
class Played:
    """An experiment that workers trained, and what its retests measured; a text is how one failed instead."""

    number: int
    value: float
    again: Sequence[float | str] = ()
    trust: str | None = "confirmed"
    status: str = "keep"

    @property
    def record(self) -> Experiment:
        return experiment(
            self.number,
            status=self.status,
            val_bpb=self.value,
            trust=self.trust,
            attempt=1,
            improved=self.status == "keep",
            delta=0.001,
            commit_sha=f"{self.number}" * 7,
            retests=len(self.again),
        )

    @property
    def retests(self) -> list[Experiment]:
        ends = [
            {"status": "crash", "error_kind": end}
            if isinstance(end, str)
            else {"status": "measured", "val_bpb": end}
            for end in self.again
        ]
        return [
            experiment(
                1, experiment_id=f"mar11-{self.number}.{n}", retest_of=f"mar11-{self.number}", seed=n, **end
            )
            for n, end in enumerate(ends, 2)
        ]

    @property
    def noise(self) -> str:
        runs: Repeats | None = None
        for value in (self.value, *(end for end in self.again if not isinstance(end, str))):
            runs, _ = run_again(runs, value, OTHERS)
        return written(runs) if runs else ""


def race(*chain: Played, rivals: Sequence[Played] = ()) -> Race:
    everybody = (*chain, *rivals)
    links = [link_of(played.record) for played in chain]
    best = Best(
        **links[-1].model_dump(),
        updated_at=0.0,
        chain=links,
        rivals=[link_of(played.record) for played in rivals],
    )
    return Race(
        RaceFacts(
            TAG,
            Policy(keep_rule="confirmed"),
            best,
            {played.record.experiment_id: played.record for played in everybody},
            {played.record.experiment_id: played.retests for played in everybody},
            Spread(OTHERS.df, OTHERS.squares, tuple(played.noise for played in everybody)),
        )
    )


def ruled(found: Race) -> tuple[Step | None, Ruling | None]:
    step = found.step()
    return step, found.ruling(step) if isinstance(step, Confirm | Demote | GiveUp | Promote) else None


OLD = Played(1, 1.0, (1.0,))
LUCKY = Played(2, 0.999, (1.0005,), "provisional")
TRUE = Played(2, 0.998, (0.998,), "provisional")

RULINGS: dict[str, tuple[Race, Step, dict[str, Any], str]] = {
    "a gain that is there again is confirmed": (
        race(OLD, TRUE),
        Confirm("mar11-2"),
        {"status": "keep", "verdict": "confirmed", "trust": "confirmed"},
        "mar11-2",
    ),
    "so is one whose value is nought": (
        race(Played(1, 1.0, (1.01,)), Played(2, 0.0, (0.0005,), "provisional")),
        Confirm("mar11-2"),
        {"verdict": "confirmed"},
        "mar11-2",
    ),
    "so is one that only its agent could run again": (
        race(OLD, Played(2, 0.998, (0.998,), "unconfirmed")),
        Confirm("mar11-2"),
        {"verdict": "confirmed", "trust": "confirmed"},
        "mar11-2",
    ),
    "a lucky run is demoted to a near miss of the keep under it": (
        race(OLD, LUCKY),
        Demote("mar11-2"),
        {"status": "discard", "verdict": "demoted", "trust": "demoted", "improved": False, "near_miss": True},
        "mar11-1",
    ),
    "further runs that contradict it are its value": (
        race(OLD, Played(2, 0.5, (0.98, 0.98), "provisional")),
        Confirm("mar11-2"),
        {"verdict": "confirmed", "judged_val_bpb": pytest.approx(0.98), "reason": CONTRADICTED},
        "mar11-2",
    ),
    "and demote it where they are worse": (
        race(OLD, Played(2, 0.5, (1.2, 1.2), "provisional")),
        Demote("mar11-2"),
        {"verdict": "demoted", "judged_val_bpb": pytest.approx(1.2), "near_miss": False},
        "mar11-1",
    ),
    "a run that only its worker failed says nothing of the code": (
        race(OLD, Played(2, 0.999, ("infra", "disk", "killed"), "provisional")),
        GiveUp("mar11-2"),
        {"status": "keep", "verdict": "unconfirmed", "trust": "unconfirmed"},
        "mar11-2",
    ),
    "code that fails on another seed falls": (
        race(OLD, Played(2, 0.9, ("oom",), "provisional")),
        Demote("mar11-2"),
        {"status": "discard", "verdict": "demoted"},
        "mar11-1",
    ),
    "a rival that beats the incumbent again rises": (
        race(OLD, rivals=[Played(3, 0.997, (0.9975,), None, "discard")]),
        Promote("mar11-3"),
        {"status": "keep", "verdict": "promoted", "trust": "confirmed", "delta": pytest.approx(0.003)},
        "mar11-3",
    ),
}


@pytest.mark.parametrize("which", RULINGS)
def test_a_ruling(which: str) -> None:
    found, step, expected, best = RULINGS[which]

    due, ruling = ruled(found)

    assert due == step
    assert ruling is not None
    told = {**ruling.fields, "status": ruling.status, "verdict": ruling.verdict}
    assert {name: told[name] for name in expected} == expected
    assert ruling.after.experiment_id == best
    if "judged_val_bpb" in expected and ruling.status == "keep":
        assert ruling.after.val_bpb == expected["judged_val_bpb"]


def test_rivals_that_do_not_beat_the_incumbent_again_are_dismissed() -> None:
    found = race(OLD, rivals=[Played(3, 0.997, (1.01,), None, "discard")])
    step = found.step()
    assert isinstance(step, Dismiss)
    ruling = found.ruling(step)
    assert (ruling.verdict, ruling.fields, ruling.after.rivals) == (None, {}, [])
    assert ruling.after.experiment_id == "mar11-1"


def test_a_keep_runs_again_before_anything_is_ruled() -> None:
    assert ruled(race(OLD, Played(2, 0.999, (), "provisional"))) == (RunAgain("mar11-2"), None)
