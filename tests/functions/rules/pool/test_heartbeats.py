"""What a heartbeat renews, and what its sender has to do."""

from __future__ import annotations

from functions.rules.pool.heartbeats import Beat, beat
from tests.functions.rules.sample import experiment, gpu

HOLDER = experiment(status="running", fence=7)
LENT = gpu(holder=HOLDER.experiment_id, fence=7)


def test_the_right_fence_renews_the_lease() -> None:
    assert beat(LENT, HOLDER, 7) == Beat(HOLDER, None)


def test_a_wrong_fence_has_to_stop_and_so_has_one_of_a_gpu_that_is_free() -> None:
    assert beat(LENT, HOLDER, 6) == Beat(None, "stop")
    assert beat(gpu(fence=7), None, 7) == Beat(None, "stop")


def test_without_a_fence_the_gpu_is_alive_and_no_lease_is_renewed() -> None:
    assert beat(LENT, HOLDER, None) == Beat(None, None)


def test_an_order_to_stop_comes_before_the_rest() -> None:
    told = HOLDER.model_copy(update={"stopping": True})
    drained = LENT.model_copy(update={"drained": True})

    assert beat(drained, told, 7) == Beat(told, "stop")
    assert beat(drained, HOLDER, 7) == Beat(HOLDER, "drain")


def test_a_gpu_is_proven_empty_before_anything_else_becomes_of_it() -> None:
    assert beat(gpu(unproven=True, drained=True), None, None) == Beat(None, "prove")
