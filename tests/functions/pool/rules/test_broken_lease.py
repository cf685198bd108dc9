"""What follows when the holder of a lease is gone."""

from __future__ import annotations

from typing import Any

import pytest

from functions.pool.rules.leases import Beat, after_lease, beat, broken, flags_after, reason_of, why_gone
from state.decisions import Gone
from state.leases import Holding, renewal
from state.records import Experiment, Gpu
from tests.functions.sample import experiment, gpu


def lent(**fields: Any) -> Gpu:
    """A GPU that `mar11-1` holds with fence 7."""
    return gpu(holder="mar11-1", fence=7, heartbeat_at=90.0, lease_expires_at=150.0, **fields)


def held(**fields: Any) -> Experiment:
    """The experiment that holds it."""
    return experiment(**{"status": "running", "attempt": 1, "fence": 7, **fields})


@pytest.mark.parametrize(
    ("now", "why"), [(100.0, None), (149.9, None), (150.0, "silent"), (1000.0, "silent")]
)
def test_a_gpu_that_is_silent_too_long_loses_its_lease(now: float, why: str | None) -> None:
    assert why_gone(lent(), now, stale_s=60.0) == why


def test_a_lease_that_is_not_renewed_runs_out_though_the_gpu_is_heard_of() -> None:
    fresh = lent().model_copy(update={"heartbeat_at": 149.0})

    assert why_gone(fresh, 149.9, stale_s=60.0) is None
    assert why_gone(fresh, 150.0, stale_s=60.0) == "expired"


def test_a_gpu_that_is_lent_to_no_experiment_has_no_lease_to_lose() -> None:
    assert why_gone(gpu(heartbeat_at=0.0, lease_expires_at=1.0), 1000.0, stale_s=60.0) is None


def test_a_run_that_began_is_tried_again_until_its_attempts_are_used_up() -> None:
    assert after_lease(lent(), held(attempt=1), 2) == "requeued"
    assert after_lease(lent(), held(attempt=2), 2) == "lost"


def test_a_run_that_did_not_begin_keeps_its_attempt_however_many_there_were() -> None:
    assert after_lease(lent(), held(status="leased", attempt=2), 2) == "same_attempt"


@pytest.mark.parametrize("status", ["leased", "running"])
def test_a_run_that_was_to_stop_is_stopped(status: str) -> None:
    assert after_lease(lent(), held(status=status, stopping=True), 2) == "stopped"


@pytest.mark.parametrize("others", [{"status": "keep"}, {"status": "registered"}, {"fence": 8}])
def test_an_experiment_without_an_attempt_under_the_lease_stays_as_it_is(others: dict[str, Any]) -> None:
    assert after_lease(lent(), held(**others), 2) is None


@pytest.mark.parametrize(
    ("why", "flags", "cleared"),
    [
        ("silent", {"offline": True, "unproven": True}, ()),
        ("expired", {"unproven": True}, ()),
        ("unproven", {"unproven": True}, ()),
        ("dead", {}, ("unproven", "footprint")),
    ],
)
def test_a_gpu_on_which_a_worker_ran_is_proven_empty_before_its_next_lease(
    why: Gone, flags: dict[str, Any], cleared: tuple[str, ...]
) -> None:
    assert flags_after(lent(runner="h:1:1"), held(), why) == (flags, cleared)


def test_a_gpu_whose_worker_did_not_begin_its_run_is_sick() -> None:
    decided = broken(lent(), held(status="leased"), "expired", reason="its lease ran out", max_attempts=2)

    assert decided.then == "same_attempt"
    assert "did not begin" in decided.flags["sick"]
    assert decided.flags["good_samples"] == 0


def test_an_agents_own_lease_that_ran_out_leaves_its_gpu_idle() -> None:
    decided = broken(lent(), held(status="registered"), "expired", reason="its lease ran out", max_attempts=2)

    assert (decided.then, decided.flags, decided.cleared) == (None, {}, ())


def test_a_gpu_that_is_unfit_for_a_run_is_sick_and_the_attempt_waits_for_another() -> None:
    decided = broken(
        lent(), held(status="leased"), "dead", reason="no driver", max_attempts=2, sick="no driver"
    )

    assert decided.then == "same_attempt"
    assert decided.flags == {"sick": "no driver", "good_samples": 0}


@pytest.mark.parametrize(
    ("why", "deadline", "fields", "reason"),
    [
        ("silent", 150.0, {}, "its worker fell silent"),
        ("expired", None, {}, "its lease ran out"),
        ("expired", 151.0, {}, "its lease ran out"),
        ("expired", 150.0, {}, "its worker went on past its time limit"),
        ("expired", 150.0, {"extended_s": 60.0}, "its lease ran out"),
        ("expired", 90.0, {"extended_s": 60.0}, "its worker went on past its time limit"),
        ("expired", 150.0, {"stopping": True}, "its worker went on after it was told to stop"),
        ("expired", 150.0, {"status": "leased"}, "its lease ran out"),
    ],
)
def test_a_lease_that_ends_at_its_deadline_says_what_its_worker_did(
    why: Gone, deadline: float | None, fields: dict[str, Any], reason: str
) -> None:
    assert reason_of(lent(deadline=deadline), held(**fields), why) == reason


HOLDER = experiment(status="running", fence=7)
LENT = gpu(holder=HOLDER.experiment_id, fence=7)


def holding(lent: Gpu, holder: Experiment | None, *, stop_fence: int = 0) -> Holding:
    return Holding(100.0, lent, holder, stop_fence=stop_fence)


def test_the_right_fence_renews_the_lease() -> None:
    assert beat(holding(LENT, HOLDER), 7) == Beat(HOLDER, None)


def test_a_wrong_fence_has_to_stop_and_so_has_one_of_a_gpu_that_is_free() -> None:
    assert beat(holding(LENT, HOLDER), 6) == Beat(None, "stop")
    assert beat(holding(gpu(fence=7), None), 7) == Beat(None, "stop")


def test_without_a_fence_the_gpu_is_alive_and_no_lease_is_renewed() -> None:
    assert beat(holding(LENT, HOLDER), None) == Beat(None, None)


def test_an_order_to_stop_comes_before_the_rest() -> None:
    told = HOLDER.model_copy(update={"stopping": True})
    drained = LENT.model_copy(update={"drained": True})

    assert beat(holding(drained, told), 7) == Beat(told, "stop")
    assert beat(holding(drained, HOLDER), 7) == Beat(HOLDER, "drain")


def test_a_lease_on_what_is_over_is_not_renewed_and_its_holder_has_to_stop() -> None:
    stopped = HOLDER.model_copy(update={"status": "stopped"})

    assert beat(holding(LENT, stopped), 7) == Beat(None, "stop")


def test_leases_that_were_called_in_have_to_stop_and_later_ones_go_on() -> None:
    assert beat(holding(LENT, HOLDER, stop_fence=7), 7) == Beat(HOLDER, "stop")
    assert beat(holding(LENT, HOLDER, stop_fence=6), 7) == Beat(HOLDER, None)


def test_a_gpu_is_proven_empty_before_anything_else_becomes_of_it() -> None:
    assert beat(holding(gpu(unproven=True, drained=True), None), None) == Beat(None, "prove")


@pytest.mark.parametrize(
    ("deadline", "more", "ends", "new_deadline"),
    [
        (None, {}, 160.0, None),
        (None, {"least": 200.0}, 200.0, None),
        (1000.0, {"least": 200.0}, 200.0, None),
        (130.0, {}, 130.0, None),
        (130.0, {"least": 200.0}, 130.0, None),
        (130.0, {"extended_s": 10.0}, 140.0, None),
        (1000.0, {"stops": True}, 160.0, 160.0),  # one length of the lease to stop in
        (1000.0, {"stops": True, "extended_s": 10.0}, 160.0, 150.0),
        (130.0, {"stops": True}, 130.0, None),
        (95.0, {"extended_s": 10.0}, 105.0, None),
    ],
)
def test_a_renewed_lease_ends_no_sooner_than_it_did_nor_after_its_deadline(
    deadline: float | None, more: dict[str, Any], ends: float, new_deadline: float | None
) -> None:
    found = renewal(gpu(deadline=deadline), 100.0, 60.0, **{"extended_s": None, "stops": False, **more})

    assert found is not None
    assert found.expires_at == ends
    assert found.fields.get("deadline") == (None if new_deadline is None else f"{new_deadline:.6f}")


def test_a_lease_whose_deadline_has_come_is_not_renewed() -> None:
    assert renewal(gpu(deadline=100.0), 100.0, 60.0, None, stops=False) is None
    assert renewal(gpu(deadline=90.0), 100.0, 60.0, 10.0, stops=True) is None
