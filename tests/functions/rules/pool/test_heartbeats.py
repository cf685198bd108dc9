"""What a heartbeat renews, and what its sender has to do."""

from __future__ import annotations

from functions.rules.pool.heartbeats import Beat, beat
from state.leases import Holding
from state.records import Experiment, Gpu
from tests.functions.rules.sample import experiment, gpu

HOLDER = experiment(status="running", fence=7)
LENT = gpu(holder=HOLDER.experiment_id, fence=7)


def held(lent: Gpu, holder: Experiment | None, *, stop_fence: int = 0) -> Holding:
    return Holding(100.0, lent, holder, None, stop_fence)


def test_the_right_fence_renews_the_lease() -> None:
    assert beat(held(LENT, HOLDER), 7) == Beat(HOLDER, None)


def test_a_wrong_fence_has_to_stop_and_so_has_one_of_a_gpu_that_is_free() -> None:
    assert beat(held(LENT, HOLDER), 6) == Beat(None, "stop")
    assert beat(held(gpu(fence=7), None), 7) == Beat(None, "stop")


def test_without_a_fence_the_gpu_is_alive_and_no_lease_is_renewed() -> None:
    assert beat(held(LENT, HOLDER), None) == Beat(None, None)


def test_an_order_to_stop_comes_before_the_rest() -> None:
    told = HOLDER.model_copy(update={"stopping": True})
    drained = LENT.model_copy(update={"drained": True})

    assert beat(held(drained, told), 7) == Beat(told, "stop")
    assert beat(held(drained, HOLDER), 7) == Beat(HOLDER, "drain")


def test_a_lease_on_what_is_over_is_not_renewed_and_its_holder_has_to_stop() -> None:
    stopped = HOLDER.model_copy(update={"status": "stopped"})

    assert beat(held(LENT, stopped), 7) == Beat(None, "stop")


def test_leases_that_were_called_in_have_to_stop_and_later_ones_go_on() -> None:
    assert beat(held(LENT, HOLDER, stop_fence=7), 7) == Beat(HOLDER, "stop")
    assert beat(held(LENT, HOLDER, stop_fence=6), 7) == Beat(HOLDER, None)


def test_a_gpu_is_proven_empty_before_anything_else_becomes_of_it() -> None:
    assert beat(held(gpu(unproven=True, drained=True), None), None) == Beat(None, "prove")
