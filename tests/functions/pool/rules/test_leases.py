"""What follows when the holder of a lease is gone, and when crashes in a row take a GPU out."""

from __future__ import annotations

from typing import Any

import pytest

from functions.pool.rules.leases import (
    Beat,
    Breaker,
    after_lease,
    beat,
    broken,
    flags_after,
    is_probe,
    may_try,
    reason_of,
    why_gone,
)
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


def test_a_gpu_loses_its_lease_by_silence_or_as_it_is_not_renewed() -> None:
    heard_of, free = (
        lent().model_copy(update={"heartbeat_at": 149.0}),
        gpu(heartbeat_at=0.0, lease_expires_at=1.0),
    )
    found = [why_gone(lent(), now, stale_s=60.0) for now in (100.0, 149.9, 150.0, 1000.0)]
    assert found == [None, None, "silent", "silent"]
    assert [why_gone(heard_of, now, stale_s=60.0) for now in (149.9, 150.0)] == [None, "expired"]
    assert why_gone(free, 1000.0, stale_s=60.0) is None  # it is lent to no experiment


@pytest.mark.parametrize(
    ("fields", "then"),
    [
        ({"attempt": 1}, "requeued"),
        ({"attempt": 2}, "lost"),  # its attempts are used up
        ({"status": "leased", "attempt": 2}, "same_attempt"),  # it did not begin
        *(({"status": status, "stopping": True}, "stopped") for status in ("leased", "running")),
        *((others, None) for others in ({"status": "keep"}, {"status": "registered"}, {"fence": 8})),
    ],
)
def test_a_run_whose_lease_broke_is_tried_again_or_lost(fields: dict[str, Any], then: str | None) -> None:
    assert after_lease(lent(), held(**fields), 2) == then


@pytest.mark.parametrize(
    ("why", "flags", "cleared"),
    [
        ("silent", {"offline": True, "unproven": True}, ()),
        ("expired", {"unproven": True}, ()),
        ("unproven", {"unproven": True}, ()),
        ("dead", {}, ("unproven", "footprint")),
    ],
)
def test_a_gpu_is_proven_empty_after_use(why: Gone, flags: dict[str, Any], cleared: tuple[str, ...]) -> None:
    assert flags_after(lent(runner="h:1:1"), held(), why) == (flags, cleared)


def test_a_gpu_whose_worker_did_not_begin_its_run_or_that_is_unfit_for_it_is_sick() -> None:
    unbegun = broken(lent(), held(status="leased"), "expired", reason="its lease ran out", max_attempts=2)
    assert (unbegun.then, unbegun.flags["good_samples"]) == ("same_attempt", 0)
    assert "did not begin" in unbegun.flags["sick"]
    unfit = broken(
        lent(), held(status="leased"), "dead", reason="no driver", max_attempts=2, sick="no driver"
    )
    assert (unfit.then, unfit.flags) == ("same_attempt", {"sick": "no driver", "good_samples": 0})
    agents = broken(lent(), held(status="registered"), "expired", reason="its lease ran out", max_attempts=2)
    assert (agents.then, agents.flags, agents.cleared) == (None, {}, ())


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
def test_an_ended_lease_says_what_its_worker_did(
    why: Gone, deadline: float | None, fields: dict[str, Any], reason: str
) -> None:
    assert reason_of(lent(deadline=deadline), held(**fields), why) == reason


HOLDER = experiment(status="running", fence=7)
LENT = gpu(holder=HOLDER.experiment_id, fence=7)


def holding(lent: Gpu, holder: Experiment | None, *, stop_fence: int = 0) -> Holding:
    return Holding(100.0, lent, holder, stop_fence=stop_fence)


def test_a_heartbeat_renews_the_lease_of_its_fence_and_is_told_what_to_do() -> None:
    told, stopped = (HOLDER.model_copy(update=to) for to in ({"stopping": True}, {"status": "stopped"}))
    drained, unproven = LENT.model_copy(update={"drained": True}), gpu(unproven=True, drained=True)
    beats = {
        "the right fence": (beat(holding(LENT, HOLDER), 7), Beat(HOLDER, None)),
        "a wrong one": (beat(holding(LENT, HOLDER), 6), Beat(None, "stop")),
        "one of a GPU that is free": (beat(holding(gpu(fence=7), None), 7), Beat(None, "stop")),
        "none: the GPU is alive": (beat(holding(LENT, HOLDER), None), Beat(None, None)),
        "an order to stop comes before the rest": (beat(holding(drained, told), 7), Beat(told, "stop")),
        "a drain": (beat(holding(drained, HOLDER), 7), Beat(HOLDER, "drain")),
        "what is over": (beat(holding(LENT, stopped), 7), Beat(None, "stop")),
        "a lease that was called in": (beat(holding(LENT, HOLDER, stop_fence=7), 7), Beat(HOLDER, "stop")),
        "a later one": (beat(holding(LENT, HOLDER, stop_fence=6), 7), Beat(HOLDER, None)),
        "a proof comes before a drain": (beat(holding(unproven, None), None), Beat(None, "prove")),
    }
    assert {what for what, (found, expected) in beats.items() if found != expected} == set()


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


BREAKER = Breaker(100.0)


@pytest.mark.parametrize(
    ("times", "is_probe", "fields", "out_s"),
    [
        *((5, True, {"trips": trips}, out_s) for trips, out_s in ((0, 100), (1, 200), (2, 400), (5, 3200))),
        *((5, True, {"trips": trips}, 3600) for trips in (6, 100_000)),
        (4, True, {}, None),
        *((times, False, {"trips": 1}, None) for times in (4, 5, 50)),  # new code may be to blame
        (6, True, {"tripped": "crashes"}, None),
    ],
)
def test_a_baseline_that_crashes_after_so_many_others_takes_a_gpu_out_and_longer_each_time(
    times: int, is_probe: bool, fields: dict[str, Any], out_s: float | None
) -> None:
    found = BREAKER.after_crash(gpu(consecutive_crashes=times - 1, **fields), is_probe=is_probe)
    assert (found.in_a_row, found.trip_s) == (times, out_s)
    assert (found.trip_reason is None) == (out_s is None)
    assert out_s is None or f"{times} runs in a row have crashed on it" in str(found.trip_reason)


def test_a_probe_is_wanted_once_so_many_runs_in_a_row_have_crashed() -> None:
    fields: list[dict[str, Any]] = [{}, {"trips": 1}, {"tripped": "crashes"}]
    assert [BREAKER.wants_probe(gpu(consecutive_crashes=5, **more)) for more in fields] == [True, True, False]
    assert not BREAKER.wants_probe(gpu(consecutive_crashes=4))


def test_a_probe_is_a_further_run_of_a_baseline_that_a_worker_has_run() -> None:
    ran = experiment(baseline=True, status="keep", val_bpb=1.0, attempt=1)
    others = [ran.model_copy(update=to) for to in ({"baseline": False}, {"val_bpb": None}, {"attempt": 0})]
    assert is_probe(ran)
    assert not any(map(is_probe, [None, *others]))


def test_a_gpu_that_is_out_may_try_runs_once_it_has_cooled_down() -> None:
    out = gpu(tripped="crashes", tripped_until=100.0)
    assert not may_try(out, 99.9)
    assert may_try(out, 100.0)
    assert not may_try(gpu(tripped_until=None), 100.0)
