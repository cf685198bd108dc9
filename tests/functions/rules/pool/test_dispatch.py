"""Who gets which GPU."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from functions.rules.pool.dispatch import lendable, pairs
from state.leases import Line
from tests.functions.rules.sample import experiment, gpu

PINS = st.lists(st.sampled_from([None, None, "g0", "g1", "g9"]), max_size=8)


@given(PINS, st.integers(0, 4))
def test_every_match_is_of_one_experiment_and_one_idle_gpu(pins: list[str | None], idle: int) -> None:
    waiting = [experiment(n, pinned_gpu=pin) for n, pin in enumerate(pins)]
    free = [gpu(f"g{n}") for n in range(idle)]

    matched = pairs(waiting, free)

    names, gpus = [e.experiment_id for e, _ in matched], [g for _, g in matched]
    assert len(set(names)) == len(names)
    assert len(set(gpus)) == len(gpus)
    assert set(gpus) <= {g.gpu_id for g in free}
    assert all(e.pinned_gpu in (None, g) for e, g in matched)
    unpinned = [e.number for e, _ in matched if e.pinned_gpu is None]
    assert unpinned == sorted(unpinned)
    left = {g.gpu_id for g in free} - set(gpus)
    assert not left or all(e.pinned_gpu is not None or e.experiment_id in names for e in waiting)


def test_the_longest_idle_gpu_goes_to_the_first_in_the_queue() -> None:
    matched = pairs([experiment(1), experiment(2)], [gpu("old"), gpu("new")])

    assert [(e.number, g) for e, g in matched] == [(1, "old"), (2, "new")]


def test_a_gpu_is_left_for_the_one_that_is_pinned_to_it() -> None:
    matched = pairs([experiment(1), experiment(2, pinned_gpu="g0")], [gpu("g0"), gpu("g1")])

    assert {e.number: g for e, g in matched} == {1: "g1", 2: "g0"}


def test_only_the_place_in_the_queue_decides_between_pinned_and_not() -> None:
    matched = pairs([experiment(1), experiment(2, pinned_gpu="g0")], [gpu("g0")])

    assert {e.number: g for e, g in matched} == {1: "g0"}


def test_a_dispatcher_lends_fresh_gpus_of_the_labs_own_workers() -> None:
    idle = [gpu("fresh", heartbeat_at=90.0), gpu("silent"), gpu("remote", heartbeat_at=90.0, owner="ann")]

    assert [g.gpu_id for g in lendable(Line(100.0, idle, [], [], []), stale_s=60.0)] == ["fresh"]
