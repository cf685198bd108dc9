"""The timeline of an experiment: its attempts and retests, phase by phase."""

from __future__ import annotations

from typing import Any

from functions.experiments.views.runs import timeline
from state.facts import Runs
from state.records import Experiment
from tests.functions import sample
from tests.functions.conftest import TagUnderTest

WAITED = {"status": "queued", "queued_at": "10.0"}
LEASED = {**WAITED, "status": "leased", "gpu_id": "g0", "fence": "1", "leased_at": "12.0"}
BEGUN = {**LEASED, "status": "running", "started_at": "13.0"}
BUILT = {**BEGUN, "built_at": "15.0"}
ENDED = {**BUILT, "status": "keep", "ended_at": "115.0"}


def run(**changes: Any) -> Experiment:
    fields: dict[str, Any] = {"status": "keep", "registered_at": 10.0, "attempt": 1}
    return sample.experiment(**fields | changes)


def phases(*attempts: dict[str, str], **e: Any) -> list[tuple[Any, ...]]:
    found = timeline(Runs(run(**e), ()), dict(enumerate(attempts, 1)))
    return [(p.phase, p.since, p.until, p.status) for p in found]


def test_each_phase_ends_where_the_next_one_begins() -> None:
    assert phases(WAITED) == [("queued", 10, None, None)]
    assert phases(LEASED) == [("queued", 10, 12, None), ("leased", 12, None, None)]
    assert phases(BEGUN)[1:] == [("leased", 12, 13, None), ("preparing", 13, None, None)]
    assert phases(BUILT)[2:] == [("preparing", 13, 15, None), ("training", 15, None, None)]
    assert phases(ENDED)[3:] == [("training", 15, 115, "keep")]


def test_a_trusted_score_is_measured_after_the_training() -> None:
    scored = phases(ENDED, score="trusted", wall_seconds=90.0)
    assert scored[3:] == [("training", 15, 105, None), ("scoring", 105, 115, "keep")]


def test_a_lost_attempt_is_followed_by_the_next_one_and_a_lease_that_no_worker_began_is_forgotten() -> None:
    lost = {**BUILT, "status": "lost", "ended_at": "60.0"}
    again = {"status": "queued", "queued_at": "61.0"}
    assert phases(lost, again, attempt=2)[3:] == [("training", 15, 60, "lost"), ("queued", 61, None, None)]
    assert phases({**LEASED, "status": "queued"}) == [("queued", 10, None, None)]


def test_an_agent_s_run_trains_from_its_registration_and_its_retests_follow() -> None:
    again = {"experiment_id": "mar11-1.2", "retest_of": "mar11-1", "status": "running", "gpu_id": "g1"}
    retest = run(**again, registered_at=60.0)

    found = timeline(Runs(run(attempt=0, finished_at=50.0), (retest,)), {})

    assert [(p.phase, p.since, p.until, p.status) for p in found] == [
        ("training", 10, 50, "keep"),
        ("retest", 60, None, None),
    ]
    assert (found[1].retest_id, found[1].gpu_id, found[0].retest_id) == ("mar11-1.2", "g1", None)


async def test_an_experiment_shows_its_phases(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.trained(1.0)
    await tag.told("/api/experiment/retest", experiment_id="mar11-1")

    shown = await tag.shown("mar11-1")

    *own, _ = found = shown["timeline"][:4]
    gpu = shown["experiment"]["gpu_id"]
    assert [p["phase"] for p in found] == ["queued", "leased", "preparing", "retest"]
    assert [(p["gpu_id"], p["status"]) for p in own] == [(None, None), (gpu, None), (gpu, "keep")]
    assert found[0]["until"] == found[1]["since"]
    assert {p["retest_id"] for p in shown["timeline"][3:]} == {r["retest_id"] for r in shown["retests"]}
