"""Which GPUs may be lent to an experiment that asks for one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.kernel.rules.access import LOCAL, Caller
from functions.pool.rules.lending import candidates, lendable, pairs, why_none, with_a_slot
from state.errors import Conflict, Forbidden
from state.leases import GpuRequest, Line
from state.policy import Policy
from state.records import Experiment, Gpu, Tag
from tests.functions.sample import experiment, gpu

ANN = Caller("ann", "worker", token_id="t1")
MAR11 = Tag(name="mar11", branch="research/mar11", created_at=0.0)


def wanted(*idle: Gpu, held: Gpu | None = None, registered: int = 9, **fields: Any) -> GpuRequest:
    """An experiment that asks while these GPUs are idle."""
    return GpuRequest(100.0, experiment(**fields), MAR11, Policy(), held, idle, registered)


def chosen(caller: Caller, asked: GpuRequest) -> list[str]:
    return candidates(caller, asked, labels={}, min_vram_mb=0, stale_s=1000.0)


def test_an_agent_gets_a_fresh_gpu_that_is_large_enough_and_carries_its_labels() -> None:
    idle = [
        gpu("silent", heartbeat_at=0.0, labels={"rack": "a"}),
        gpu("small", heartbeat_at=90.0, vram_mb=8000, labels={"rack": "a"}),
        gpu("elsewhere", heartbeat_at=90.0, labels={"rack": "b"}),
        gpu("right", heartbeat_at=90.0, labels={"rack": "a", "more": "x"}),
        gpu("too", heartbeat_at=95.0, labels={"rack": "a"}),
    ]

    found = candidates(LOCAL, wanted(*idle), labels={"rack": "a"}, min_vram_mb=40000, stale_s=60)

    assert found == ["right", "too"]


def test_a_worker_is_lent_only_gpus_that_it_registered() -> None:
    idle = [gpu("lab's"), gpu("hers", owner="ann"), gpu("his", owner="bob")]
    assert chosen(ANN, wanted(*idle)) == ["hers"]
    assert chosen(LOCAL, wanted(*idle)) == ["lab's", "hers", "his"]


def test_an_agent_s_own_gpus_are_lent_to_it_alone_and_before_the_lab_s() -> None:
    idle = [gpu("lab's"), gpu("served", owner="box1"), gpu("hers", owner="eve", of_agent=True)]
    idle += [gpu("his", owner="bob", of_agent=True)]
    assert chosen(Caller("eve", "agent", token_id="t2"), wanted(*idle)) == ["hers", "lab's", "served"]
    assert chosen(LOCAL, wanted(*idle)) == ["lab's", "served"]
    assert chosen(Caller("eve", "worker", token_id="t3"), wanted(*idle)) == []
    with pytest.raises(Forbidden):
        chosen(Caller("eve", "agent", token_id="t2"), wanted(held=idle[-1]))


def test_a_retest_is_lent_only_the_class_of_gpu_that_its_experiment_ran_on() -> None:
    idle = [gpu("a", gpu_name="A100"), gpu("h", gpu_name="H100")]
    assert chosen(LOCAL, wanted(*idle, retest_of="mar11-1", gpu_class="H100")) == ["h"]
    assert chosen(LOCAL, wanted(*idle, gpu_class="H100")) == ["a", "h"]


@pytest.mark.parametrize("status", ["queued", "leased", "running"])
def test_while_a_worker_has_it_or_will_have_it_no_gpu_is_lent(status: str) -> None:
    asked = wanted(gpu("free"), status=status)
    assert chosen(LOCAL, asked) == []
    assert status in why_none(asked)


def test_what_is_finished_or_anothers_is_refused() -> None:
    with pytest.raises(Conflict, match="finished: keep"):
        chosen(LOCAL, wanted(gpu("free"), status="keep"))
    with pytest.raises(Forbidden):
        chosen(ANN, wanted(gpu("free"), owner="bob"))
    with pytest.raises(Forbidden):
        chosen(ANN, wanted(held=gpu("his", owner="bob")))


def test_an_agent_is_told_to_start_a_worker_where_there_is_none() -> None:
    assert "start a worker" in why_none(wanted(registered=0))
    assert "no idle, healthy GPU" in why_none(wanted())


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


A100, H100 = gpu("a", gpu_name="A100"), gpu("h", gpu_name="H100")
RETEST, DISTURBED = experiment(1, retest_of="mar11-9", gpu_class="H100"), experiment(1, avoided_gpu="g0")
ONE, TWO, PINNED = experiment(1), experiment(2), experiment(2, pinned_gpu="g0")
MATCHES: dict[str, tuple[list[Experiment], list[Gpu], dict[int, str]]] = {
    "the longest idle GPU goes to the first in the queue": (
        [ONE, TWO],
        [gpu(), gpu("g1")],
        {1: "g0", 2: "g1"},
    ),
    "a GPU is left for the one that is pinned to it": ([ONE, PINNED], [gpu(), gpu("g1")], {1: "g1", 2: "g0"}),
    "only the place in the queue decides between pinned and not": ([ONE, PINNED], [gpu()], {1: "g0"}),
    "a retest waits for a GPU of its experiment's class": ([RETEST], [A100], {}),
    "and holds nobody up": ([RETEST, TWO], [A100, H100], {1: "h", 2: "a"}),
    "a disturbed run waits for another slot": ([DISTURBED], [gpu()], {}),
    "and so does it": ([DISTURBED, TWO], [gpu(), gpu("g1")], {1: "g1", 2: "g0"}),
}


@pytest.mark.parametrize("match", MATCHES)
def test_waiting_experiments_are_matched_with_gpus(match: str) -> None:
    waiting, idle, expected = MATCHES[match]
    assert {e.number: g for e, g in pairs(waiting, idle)} == expected


def test_a_dispatcher_lends_fresh_gpus_of_the_labs_own_workers() -> None:
    idle = [gpu("fresh", heartbeat_at=90.0), gpu("silent"), gpu("remote", heartbeat_at=90.0, owner="ann")]
    assert [g.gpu_id for g in lendable(Line(100.0, idle, [], [], []), stale_s=60.0)] == ["fresh"]


@pytest.mark.parametrize(
    ("other", "fields", "avoids"),
    [
        ({}, {}, "g0"),
        ({"status": "training"}, {}, "g0"),  # it waits for that one
        ({"status": "offline"}, {}, None),
        ({"status": "draining"}, {}, None),
        ({"gpu_name": "A100"}, {}, None),  # another class of GPU
        ({"owner": "ann", "of_agent": True}, {}, None),
        ({"is_confined": False}, {"is_confined": True}, None),
        ({}, {"pinned_gpu": "g0"}, None),
    ],
)
def test_a_disturbed_run_avoids_its_slot_while_another_one_of_that_class_serves_it(
    other: dict[str, Any], fields: dict[str, Any], avoids: str | None
) -> None:
    disturbed = experiment(1, avoided_gpu="g0", **fields)
    assert with_a_slot(disturbed, [gpu("g0"), gpu("g1", **other)]).avoided_gpu == avoids
