"""Traces under changes of mode, late merges, falling bases and other hardware."""

from __future__ import annotations

from typing import Any

import pytest

from functions.branches import context
from tests.functions.conftest import TagUnderTest
from tests.labs import add_gpu

TAG = "mar11"


async def test_crashes_of_an_epoch_that_is_over_kill_no_trace(tag: TagUnderTest) -> None:
    await tag.branch(target=1, max_inflight_per_trace=3)
    await tag.grown(1.0)
    late = [await tag.made(await tag.selected()) for _ in range(3)]
    await tag.told("/api/trace/configure", tag=TAG, new_epoch=True)
    for name in late:
        await tag.told("/api/experiment/crash", experiment_id=name, error="boom")
    [trace] = (await tag.traces()).values()
    assert (trace["status"], trace["length"], trace["tip"]) == ("live", 4, "mar11-1")


async def test_a_policy_of_traces_beyond_all_bounds_is_refused(tag: TagUnderTest) -> None:
    await tag.branch()
    for name in ("lease_ttl_s", "target_traces", "max_parallel", "stale_after"):
        await tag.refused(422, "/api/trace/configure", tag=TAG, **{name: 10**30})
    assert (await tag.selected())["status"] == "selected"


CONTRADICTIONS: list[dict[str, Any]] = [
    *({"trace_id": "mar11-t1", "intent": intent} for intent in ("new_root", "branch", "merge")),
    {"trace_id": "mar11-t1", "parent_ids": ["mar11-1"]},
    {"intent": "new_root", "parent_ids": ["mar11-1"]},
    {"intent": "extend", "parent_ids": ["mar11-1", "mar11-2"]},
]


async def test_a_wish_that_contradicts_itself_is_refused(tag: TagUnderTest) -> None:
    await tag.branch()
    await tag.grown(1.0)
    await tag.grown(1.1)
    for wish in CONTRADICTIONS:
        await tag.refused(422, "/api/trace/select", tag=TAG, **wish)
    assert (await tag.told("/api/trace/list", tag=TAG))["open_selections"] == 0


async def test_branches_on_a_demoted_base_go_back_to_the_keep_before(tag: TagUnderTest) -> None:
    await tag.branch(target=2, max_inflight_per_trace=2, keep_rule="confirmed")
    await add_gpu(tag.client)
    first = await tag.trained_from(await tag.selected(), 1.0)
    for nth, value in enumerate((1.001, 0.9995), 2):
        await tag.measured(f"{first}.{nth}", value)
    lucky = await tag.trained_from(await tag.selected(trace_id="mar11-t1"), 0.9992)
    branch = await tag.selected(intent="branch", parent_ids=[lucky])
    await tag.complete(await tag.made(branch), 1.3)
    begun = await tag.made(await tag.selected(trace_id="mar11-t2"))
    assert (await tag.traces())["mar11-t2"]["base"] == lucky

    await tag.measured(f"{lucky}.2", 1.0012)

    assert (await tag.experiment(lucky))["status"] == "discard"
    assert [t["base"] for t in (await tag.traces()).values()] == [first, first]
    assert await tag.faults() == []
    assert (await tag.complete(begun, 1.0005))["branch_improved"] is False
    assert (await tag.selected(trace_id="mar11-t2"))["base_experiment_id"] == first


async def test_what_was_tried_beside_it_stays_told(
    tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "BESIDE_READ", 3)
    await tag.branch(target=3, max_inflight_per_trace=2)
    await tag.grown(1.0)
    one, two = [await tag.selected(trace_id="mar11-t1") for _ in range(2)]
    leaf = await tag.made(one)
    await tag.complete(await tag.made(two), 1.1)
    await tag.complete(leaf, 1.3)
    chosen = await tag.selected(trace_id="mar11-t1")
    ask = {"tag": TAG, "selection_id": chosen["selection_id"], "siblings": "always"}
    before = await tag.told("/api/trace/context", **ask)

    await tag.grown(1.2, intent="new_root")
    for _ in range(3):
        await tag.grown(1.2, trace_id="mar11-t2")

    after = await tag.told("/api/trace/context", **ask)
    assert [e["experiment_id"] for e in before["siblings"]] == [leaf]
    assert after == before
