"""Traces under changes of mode, late merges, falling bases and other hardware."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from functions.process.lifecycle import Process
from functions.trace import context
from tests.functions.test_branching import complete, experiment, listed, measured, multi, trained
from tests.functions.test_traces import audited, grown, made, selected, switch
from tests.labs import add_gpu, idea, open_tag, refused, told, tried

TAG = "mar11"


# -- merges


async def test_nodes_that_were_made_before_there_were_traces_are_merged_into_the_tag_s_own_line(
    client: httpx.AsyncClient,
) -> None:
    await open_tag(client, policy={"traces": {"target_traces": 2, "max_parallel": 9}})
    for value in (1.0, 1.1):
        await tried(client, value)
    await switch(client, "multi")

    chosen = await selected(client, parent_ids=["mar11-1", "mar11-2"])

    assert (chosen["kind"], chosen["trace_id"]) == ("merge", "mar11-t0")
    assert chosen["parent_ids"] == ["mar11-1", "mar11-2"]


@pytest.mark.parametrize("named", [["mar11-1"], ["mar11-1", "mar11-1"]], ids=["one", "one_twice"])
async def test_a_merge_of_one_node_is_refused(client: httpx.AsyncClient, named: list[str]) -> None:
    await multi(client)
    await grown(client, 1.0)

    answer = await refused(client, 409, "/api/trace/select", tag=TAG, intent="merge", parent_ids=named)

    assert answer["code"] == "one_base"


async def test_a_merge_that_is_a_leaf_beside_its_trace_ends_no_other(client: httpx.AsyncClient) -> None:
    await multi(client, max_inflight_per_trace=2)
    await grown(client, 1.0)
    await grown(client, 1.1)
    merge = await made(client, await told(client, "/api/trace/merge", tag=TAG))
    await grown(client, 1.05, trace_id="mar11-t1")

    verdict = await complete(client, merge, 0.9)

    assert verdict["status"] == "keep"
    assert (await experiment(client, merge))["forked"] is True
    assert [t["status"] for t in (await listed(client)).values()] == ["live", "live"]
    assert await audited(client) == []


async def test_a_merge_into_a_trace_that_was_closed_meanwhile_ends_no_other(
    client: httpx.AsyncClient,
) -> None:
    await multi(client)
    await grown(client, 1.0)
    await grown(client, 1.1)
    merge = await made(client, await told(client, "/api/trace/merge", tag=TAG))
    await told(client, "/api/trace/close", tag=TAG, trace_id="mar11-t1")

    await complete(client, merge, 0.9)

    assert [t["status"] for t in (await listed(client)).values()] == ["closed", "live"]
    assert await audited(client) == []


async def test_a_trace_without_a_result_is_merged_into_nothing(client: httpx.AsyncClient) -> None:
    await multi(client)
    await grown(client, 1.0)
    await selected(client)

    into = await refused(client, 409, "/api/trace/merge", tag=TAG, into="mar11-t2")
    named = await refused(client, 409, "/api/trace/merge", tag=TAG, sources=["mar11-t1", "mar11-t2"])

    assert [into["code"], named["code"]] == ["pending_trace"] * 2


async def test_near_misses_of_ended_traces_do_not_stand_in_the_way_of_others(
    client: httpx.AsyncClient,
) -> None:
    await multi(client, target=4)
    for value in (1.0, 1.0001, 1.0002, 1.0003):
        await grown(client, value)
    near = [
        (await grown(client, 1.0005 + n / 10_000, trace_id=f"mar11-t{n}"))["experiment_id"]
        for n in (1, 2, 3, 4)
    ]
    for n in (1, 2):
        await told(client, "/api/trace/close", tag=TAG, trace_id=f"mar11-t{n}")

    chosen = await told(client, "/api/trace/merge", tag=TAG, selector="near_miss")

    assert chosen["trace_id"] == "mar11-t3"
    assert chosen["parent_ids"] == [near[0], near[2]]


# -- epochs and modes


async def test_crashes_of_an_epoch_that_is_over_kill_no_trace(client: httpx.AsyncClient) -> None:
    await multi(client, target=1, max_inflight_per_trace=3)
    await grown(client, 1.0)
    late = [await made(client, await selected(client)) for _ in range(3)]
    await told(client, "/api/trace/configure", tag=TAG, new_epoch=True)

    for name in late:
        await told(client, "/api/experiment/crash", experiment_id=name, error="boom")

    [trace] = (await listed(client)).values()
    assert (trace["status"], trace["length"], trace["tip"]) == ("live", 4, "mar11-1")
    assert await audited(client) == []


@pytest.mark.parametrize("name", ["lease_ttl_s", "target_traces", "max_parallel", "stale_after"])
async def test_a_policy_of_traces_beyond_all_bounds_is_refused(client: httpx.AsyncClient, name: str) -> None:
    await multi(client)

    await refused(client, 422, "/api/trace/configure", tag=TAG, **{name: 10**30})

    assert (await selected(client))["status"] == "selected"


async def test_what_was_selected_before_an_epoch_and_not_used_takes_no_slot_in_it(
    client: httpx.AsyncClient,
) -> None:
    await multi(client, max_parallel=2)
    await grown(client, 1.0)
    await grown(client, 1.0)
    unused, _ = await selected(client), await selected(client)

    await told(client, "/api/trace/configure", tag=TAG, new_epoch=True)

    assert [(await selected(client))["kind"] for _ in range(2)] == ["extend", "extend"]
    late = idea(TAG, selection_id=unused["selection_id"])
    answer = await refused(client, 409, "/api/experiment/register", **late)
    assert (answer["code"], answer["epoch"]) == ("stale_epoch", 2)
    assert await audited(client) == []


async def test_the_one_trace_of_a_tag_is_neither_closed_nor_reopened(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await grown(client, 1.0)

    for verb in ("close", "reopen"):
        answer = await refused(client, 409, f"/api/trace/{verb}", tag=TAG, trace_id="mar11-t0")
        assert answer["code"] == "single_mode"

    assert await audited(client) == []


async def test_a_root_that_was_given_back_leaves_its_place_to_a_root(client: httpx.AsyncClient) -> None:
    await multi(client, target=2)
    unused = await selected(client)
    await told(client, "/api/trace/release", selection_id=unused["selection_id"])
    await grown(client, 1.0)
    await grown(client, 0.9, trace_id="mar11-t2")

    chosen = await selected(client)

    assert (chosen["kind"], chosen["parent_ids"]) == ("new_root", [])


@pytest.mark.parametrize(
    "wish",
    [
        {"trace_id": "mar11-t1", "intent": "new_root"},
        {"trace_id": "mar11-t1", "intent": "branch"},
        {"trace_id": "mar11-t1", "intent": "merge"},
        {"trace_id": "mar11-t1", "parent_ids": ["mar11-1"]},
        {"intent": "new_root", "parent_ids": ["mar11-1"]},
        {"intent": "extend", "parent_ids": ["mar11-1", "mar11-2"]},
    ],
)
async def test_a_wish_that_contradicts_itself_is_refused(
    client: httpx.AsyncClient, wish: dict[str, Any]
) -> None:
    await multi(client)
    await grown(client, 1.0)
    await grown(client, 1.1)

    await refused(client, 422, "/api/trace/select", tag=TAG, **wish)

    assert (await told(client, "/api/trace/list", tag=TAG))["open_selections"] == 0


# -- demotions


async def test_every_branch_that_stands_on_a_demoted_base_goes_back_to_the_keep_before(
    client: httpx.AsyncClient, process: Process
) -> None:
    await multi(client, target=2, max_inflight_per_trace=2)
    await told(client, "/api/search/set-policy", tag=TAG, policy={"keep_rule": "confirmed"})
    await add_gpu(client)
    first = await trained(client, process, 1.0, commit_sha="abc1234")
    for nth, value in enumerate((1.001, 0.9995), 2):
        await measured(client, process, f"{first}.{nth}", value)
    lucky = await submitted(client, process, await selected(client, trace_id="mar11-t1"), 0.9992)
    branch = await selected(client, intent="branch", parent_ids=[lucky])
    await complete(client, await made(client, branch), 1.3)
    begun = await made(client, await selected(client, trace_id="mar11-t2"))
    assert (await listed(client))["mar11-t2"]["base"] == lucky

    await measured(client, process, f"{lucky}.2", 1.0012)

    assert (await experiment(client, lucky))["status"] == "discard"
    assert [t["base"] for t in (await listed(client)).values()] == [first, first]
    assert await audited(client) == []
    assert (await complete(client, begun, 1.0005))["branch_improved"] is False
    assert (await selected(client, trace_id="mar11-t2"))["base_experiment_id"] == first


async def test_a_branch_that_was_selected_on_a_base_that_fell_since_begins_on_the_keep_before(
    client: httpx.AsyncClient, process: Process
) -> None:
    await multi(client, target=2)
    await told(client, "/api/search/set-policy", tag=TAG, policy={"keep_rule": "confirmed"})
    await add_gpu(client)
    first = await trained(client, process, 1.0, commit_sha="abc1234")
    for nth, value in enumerate((1.001, 0.9995), 2):
        await measured(client, process, f"{first}.{nth}", value)
    lucky = await submitted(client, process, await selected(client, trace_id="mar11-t1"), 0.9992)
    branch = await selected(client, intent="branch", parent_ids=[lucky])
    await measured(client, process, f"{lucky}.2", 1.0012)

    await submitted(client, process, branch, 1.3)

    born = (await listed(client))["mar11-t2"]
    assert (born["origin"], born["base"]) == (lucky, first)
    assert await audited(client) == []


async def submitted(client: httpx.AsyncClient, process: Process, chosen: dict[str, Any], value: float) -> str:
    """An experiment of a selection that a worker trained."""
    body = idea(TAG, selection_id=chosen["selection_id"])
    answer = await told(client, "/api/experiment/submit", **body)
    await measured(client, process, answer["experiment_id"], value)
    return str(answer["experiment_id"])


# -- context


async def test_what_was_tried_beside_a_selection_stays_told_however_much_is_tried_after_it(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "BESIDE_READ", 3)
    await multi(client, target=3, max_inflight_per_trace=2)
    await grown(client, 1.0)
    one, two = [await selected(client, trace_id="mar11-t1") for _ in range(2)]
    leaf = await made(client, one)
    await complete(client, await made(client, two), 1.1)
    await complete(client, leaf, 1.3)
    chosen = await selected(client, trace_id="mar11-t1")
    ask = {"tag": TAG, "selection_id": chosen["selection_id"], "siblings": "always"}
    before = await told(client, "/api/trace/context", **ask)

    await grown(client, 1.2, intent="new_root")
    for _ in range(3):
        await grown(client, 1.2, trace_id="mar11-t2")

    after = await told(client, "/api/trace/context", **ask)
    assert [e["experiment_id"] for e in before["siblings"]] == [leaf]
    assert after == before


# -- hardware


async def test_gpu_classes_do_not_compete_on_a_branch(client: httpx.AsyncClient) -> None:
    await multi(client, target=1)
    h100, a100 = {"gpu_class": "H100"}, {"gpu_class": "A100"}

    async def on(where: dict[str, str], value: float) -> tuple[str, bool | None]:
        name = await made(client, await selected(client))
        body = {"experiment_id": name, "val_bpb": value, **where}
        verdict = await told(client, "/api/experiment/complete", **body)
        return verdict["status"], verdict["branch_improved"]

    assert await on(h100, 1.0) == ("keep", True)
    assert await on(a100, 2.0) == ("keep", None)  # the first of its own kind
    assert await on(h100, 1.5) == ("discard", False)
    assert await on(a100, 3.0) == ("discard", None)
    assert await on(h100, 0.9) == ("keep", True)
    assert await on(a100, 0.1) == ("keep", None)
    [trace] = (await listed(client)).values()
    assert (trace["base"], trace["tip"]) == ("mar11-5", "mar11-6")
    assert await audited(client) == []
