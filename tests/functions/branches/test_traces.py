"""Traces: selections, their ends and refusals, over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from redis import Redis

from functions.branches.traces import drawn
from state.records import Experiment
from state.selecting import SelectionDecision
from state.traces import Traces
from tests.functions.conftest import TagUnderTest
from tests.functions.sample import experiment
from tests.labs import curl, for_a_while, idea, open_tag, told

TAG = "mar11"
MULTI = {"traces.mode": "multi", "traces.target_traces": 2, "traces.max_parallel": 4}


@pytest.fixture
async def forest(tag: TagUnderTest) -> TagUnderTest:
    """A tag in multi mode: two traces, four slots."""
    await open_tag(tag.client, policy=MULTI)
    return tag


async def test_a_cold_start_opens_roots_up_to_the_target_and_then_says_wait(forest: TagUnderTest) -> None:
    one, two = await forest.selected(), await forest.selected()
    ask = {"tag": TAG, "request_id": "r1"}
    third = await forest.told("/api/trace/select", **ask)
    assert [s["kind"] for s in (one, two)] == ["new_root", "new_root"]
    assert [s["trace_id"] for s in (one, two)] == ["mar11-t1", "mar11-t2"]
    assert [(s["parent_ids"], s["local_selection"]) for s in (one, two)] == [([], [])] * 2
    assert (third["status"], third["reason"]) == ("wait", "all_busy")
    assert 0 < third["retry_after"] <= 15
    assert third["selection_id"] is None

    waiting = asyncio.create_task(forest.told("/api/trace/select", **ask, wait=50))
    await asyncio.sleep(0)
    await forest.told("/api/trace/release", selection_id=one["selection_id"])
    found = await asyncio.wait_for(waiting, 30)
    assert (found["status"], found["kind"]) == ("selected", "new_root"), "it is woken"


async def test_the_same_request_gets_the_same_selection(forest: TagUnderTest) -> None:
    first = await forest.selected(request_id="r1")
    await forest.told("/api/trace/release", selection_id=first["selection_id"])
    again = await forest.selected(request_id="r1")
    other = await forest.refused(422, "/api/trace/select", tag=TAG, request_id="r1", agent="bob")
    assert again == first
    assert "another body" in other["detail"]
    assert len(await forest.events("selection.opened")) == 1


async def test_a_lease_that_ends_frees_the_slot_without_any_cron(forest: TagUnderTest) -> None:
    one, two = await forest.selected(), await forest.selected()
    key = forest.lab.keys("open_selections", TAG)
    await forest.lab.command("ZADD", key, repr(await forest.lab.now() + 60), two["selection_id"])
    renewed = await forest.told("/api/trace/renew", selection_id=two["selection_id"])
    left = float(await forest.lab.command("ZSCORE", key, two["selection_id"])) - await forest.lab.now()
    assert 890 < left <= 900, "a renewed lease lasts its whole length again"
    assert (renewed["status"], renewed["held_by"]) == ("open", None)
    await forest.lab.command("ZADD", key, "1", one["selection_id"])

    third = await forest.selected()

    assert third["kind"] == "new_root"
    assert [e["subject"] for e in await forest.events("selection.expired")] == [one["selection_id"]]
    shown = await forest.told("/api/trace/list", tag=TAG)
    assert [t["trace_id"] for t in shown["traces"]] == [two["trace_id"], third["trace_id"]]
    late = await forest.refused(409, "/api/experiment/register", **idea(selection_id=one["selection_id"]))
    renewal = await forest.refused(409, "/api/trace/renew", selection_id=one["selection_id"])
    assert late["code"] == renewal["code"] == "selection_expired"


async def test_an_experiment_keeps_its_selection_open_however_long_it_takes(forest: TagUnderTest) -> None:
    one = await forest.selected()
    name = await forest.made(one)
    await forest.told("/api/trace/sweep")
    held = await forest.told("/api/trace/renew", selection_id=one["selection_id"])
    busy = await forest.refused(409, "/api/trace/release", selection_id=one["selection_id"])

    await forest.told("/api/experiment/stop", experiment_id=name)

    assert held["held_by"] == name
    assert (busy["code"], busy["experiment_id"]) == ("selection_registered", name)
    shown = await forest.told("/api/trace/list", tag=TAG)
    assert shown["open_selections"] == 0
    assert [(t["status"], t["in_flight"]) for t in shown["traces"]] == [("dead", 0)]
    assert (await forest.selected())["kind"] == "new_root"


async def test_what_cannot_be_selected_or_merged_is_refused_in_its_own_way(forest: TagUnderTest) -> None:
    async def refusal(status: int, verb: str = "select", **wish: Any) -> dict[str, Any]:
        return await forest.refused(status, f"/api/trace/{verb}", tag=TAG, **wish)

    assert (await refusal(422, parent_ids=["mar11-9"]))["code"] == "unknown_parent"
    name = await forest.made(await forest.selected())
    unfinished = await refusal(409, parent_ids=[name])
    assert unfinished["code"] == "unfinished_parent"
    assert f"wait for it with GET /api/experiment/{name}/wait" in unfinished["hint"]

    await forest.complete(name, 1.0)
    alone, same = await refusal(409, "merge"), await refusal(409, "merge", sources=["mar11-t1"])
    assert [alone["code"], same["code"]] == ["one_base"] * 2
    assert "only mar11-1" in alone["detail"]
    for named in (["mar11-1"], ["mar11-1", "mar11-1"]):
        assert (await refusal(409, intent="merge", parent_ids=named))["code"] == "one_base"

    await forest.selected()
    into = await refusal(409, "merge", into="mar11-t2")
    named_too = await refusal(409, "merge", sources=["mar11-t1", "mar11-t2"])
    assert [into["code"], named_too["code"]] == ["pending_trace"] * 2
    full = await refusal(409, intent="new_root")
    assert (full["code"], full["target_traces"]) == ("no_room", 2)
    await forest.told("/api/trace/configure", tag=TAG, target_traces=3)
    assert (await refusal(409, intent="branch"))["code"] == "no_parent"

    await forest.selected(trace_id="mar11-t1")
    busy = await refusal(409, trace_id="mar11-t1")
    assert (busy["code"], busy["retry_after"] > 0) == ("busy_trace", True)


async def test_in_single_mode_there_is_one_trace(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    for more in ({"intent": "new_root"}, {"trace_id": "mar11-t1"}, {"intent": "merge"}):
        assert (await tag.refused(409, "/api/trace/select", tag=TAG, **more))["code"] == "single_mode"
    await tag.grown(1.0)
    for verb in ("close", "reopen"):
        answer = await tag.refused(409, f"/api/trace/{verb}", tag=TAG, trace_id="mar11-t0")
        assert answer["code"] == "single_mode"


async def test_a_parent_that_ended_without_a_result_is_not_to_be_waited_for(forest: TagUnderTest) -> None:
    stopped = await forest.made(await forest.selected())
    await forest.told("/api/experiment/stop", experiment_id=stopped)
    retracted = (await forest.grown(1.0))["experiment_id"]
    await forest.told("/api/experiment/retract", experiment_id=retracted, reason="a mistake")
    for name in (stopped, retracted):
        answer = await forest.refused(409, "/api/trace/select", tag=TAG, parent_ids=[name])
        assert answer["code"] == "no_result"
        assert "wait" not in answer["hint"]


async def test_a_closed_trace_is_refused_until_reopened_where_there_is_room(forest: TagUnderTest) -> None:
    for number, value in ((1, 1.0), (2, 1.1)):
        await forest.grown(value)
        await forest.told("/api/trace/close", tag=TAG, trace_id=f"mar11-t{number}")
    answer = await forest.refused(409, "/api/trace/select", tag=TAG, trace_id="mar11-t1")
    assert (answer["code"], answer["trace_status"]) == ("closed_trace", "closed")

    await forest.told("/api/trace/configure", tag=TAG, target_traces=1)
    await forest.told("/api/trace/reopen", tag=TAG, trace_id="mar11-t1")
    full = await forest.refused(409, "/api/trace/reopen", tag=TAG, trace_id="mar11-t2")
    assert full["code"] == "no_room"
    assert (await forest.selected(trace_id="mar11-t1"))["parent_ids"] == ["mar11-1"]


async def test_what_comes_in_after_its_epoch_is_recorded_and_is_nobodys_parent(forest: TagUnderTest) -> None:
    await forest.grown(1.0)
    late = await forest.made(await forest.selected(trace_id="mar11-t1"))
    await forest.switch("single")
    await forest.switch("multi")

    verdict = await forest.complete(late, 0.9)

    assert (verdict["status"], verdict["improved"]) == ("keep", True)
    shown = (await forest.asked(f"/api/experiment/{late}"))["experiment"]
    assert (shown["forked"], shown["outdated"], shown["parent_ids"]) == (True, True, ["mar11-1"])
    listed = await forest.told("/api/trace/list", tag=TAG)
    assert (listed["traces"][0]["tip"], listed["traces"][0]["base"]) == ("mar11-1", "mar11-1")
    answer = await forest.refused(409, "/api/trace/select", tag=TAG, parent_ids=[late])
    assert answer["code"] == "stale_epoch"
    assert (await forest.told("/api/experiment/best", tag=TAG))["best"]["experiment_id"] == late


async def test_a_branch_s_context_is_the_same_whatever_other_branches_do(forest: TagUnderTest) -> None:
    await forest.grown(1.0, 1.1)
    await forest.grown(1.05, trace_id="mar11-t1")
    chosen = await forest.selected(trace_id="mar11-t1", include_context=True)
    ask = {"tag": TAG, "selection_id": chosen["selection_id"], "siblings": "always"}
    before = (await curl(forest.client, "/api/trace/context", ask)).json()

    await forest.grown(0.9, 0.95, 0.8, trace_id="mar11-t2")
    after = (await curl(forest.client, "/api/trace/context", ask)).json()

    def ids(experiments: list[dict[str, Any]]) -> list[str]:
        return [e["experiment_id"] for e in experiments]

    branch = after["branch"]
    assert json.dumps([branch, after["siblings"]]) == json.dumps([before["branch"], before["siblings"]])
    assert (ids(after["siblings"]), branch["ancestors"]) == (["mar11-2"], ["mar11-1", "mar11-3"])
    assert (ids(branch["kept"]), ids(branch["failures"])) == (["mar11-1"], ["mar11-3"])
    assert branch["base"]["experiment_id"] == "mar11-1"
    assert ids([before["global_best"], after["global_best"]]) == ["mar11-1", "mar11-6"]
    assert chosen["context"]["branch"] == before["branch"]


async def test_the_context_of_all_is_the_tag_s(forest: TagUnderTest) -> None:
    await forest.grown(1.0, 1.1, 1.2, 1.3)

    found = await forest.told(
        "/api/trace/context", tag=TAG, parent_ids=["mar11-1"], search_type="all", max_failed=1
    )
    kept = await forest.told("/api/trace/context", tag=TAG, parent_ids=["mar11-1"], return_type="kept")

    assert [e["experiment_id"] for e in found["branch"]["kept"]] == ["mar11-1", "mar11-2"]
    assert [e["experiment_id"] for e in found["branch"]["failures"]] == ["mar11-4"]
    assert kept["branch"]["failures"] == []


async def test_an_operator_configures_the_traces_in_one_call(forest: TagUnderTest) -> None:
    await forest.grown(1.0, 1.1)
    answer = await forest.told(
        "/api/trace/configure", tag=TAG, scheduler="priority", priorities={"mar11-t2": 2.5}
    )

    assert (answer["traces"]["scheduler"], answer["traces"]["target_traces"]) == ("priority", 2)
    assert answer["priorities"] == {"mar11-t1": 0.0, "mar11-t2": 2.5}
    raised = await forest.told("/api/trace/configure", tag=TAG, priorities={"mar11-t1": 3.0})
    assert raised == answer | {"priorities": {"mar11-t1": 3.0, "mar11-t2": 2.5}}
    await forest.told("/api/trace/configure", tag=TAG, priorities={"mar11-t1": 0.0})
    chosen = await forest.selected()
    assert (chosen["trace_id"], chosen["scheduler"]) == ("mar11-t2", "priority")
    assert chosen["scores"] == {"mar11-t1": 0.0, "mar11-t2": 2.5}
    wrong = await forest.refused(422, "/api/trace/configure", tag=TAG, scheduler="dice")
    assert "no scheduler 'dice'" in wrong["detail"]
    await forest.refused(404, "/api/trace/configure", tag=TAG, priorities={"mar11-t9": 1.0})


async def test_a_new_epoch_leaves_the_traces_and_ends_what_was_selected(forest: TagUnderTest) -> None:
    await forest.grown(1.0)
    one = await forest.selected(trace_id="mar11-t1")
    answer = await forest.told("/api/trace/configure", tag=TAG, new_epoch=True)
    assert answer["epoch"] == 2
    stale = await forest.refused(409, "/api/experiment/register", **idea(selection_id=one["selection_id"]))
    assert stale["code"] == "stale_epoch"
    await forest.told("/api/trace/release", selection_id=one["selection_id"])
    assert (await forest.selected(trace_id="mar11-t1"))["parent_ids"] == ["mar11-1"]


WOUNDS = {
    "tip": ("HSET", "trace:mar11-t1", "tip", "mar11-9"),
    "base": ("HSET", "trace:mar11-t1", "base", "mar11-3"),
    "length": ("HINCRBY", "trace:mar11-t1", "length", "1"),
    "kept": ("HINCRBY", "trace:mar11-t2", "kept", "-1"),
    "in flight": ("HINCRBY", "trace:mar11-t1", "in_flight", "-1"),
    "index": ("ZREM", "live_traces:mar11", "mar11-t2"),
    "status": ("HSET", "trace:mar11-t2", "status", "dead"),
    "open": ("ZREM", "open_selections:mar11", "mar11-s4"),
    "lease": ("ZADD", "open_selections:mar11", "1", "mar11-s4"),
    "over": ("HSET", "selections:mar11-s4", "status", "released"),
    "endless": ("ZADD", "open_selections:mar11", "+inf", "mar11-s5"),
    "parents": ("HSET", "experiments:mar11-3", "parent_ids", '["mar11-2"]'),
    "numbers": ("HSET", "experiments:mar11-3", "local_selection", "[2]"),
    "no trace": ("DEL", "trace:mar11-t2"),
    "made for": ("ZREM", "of_trace:mar11-t1", "mar11-1"),
    "made for another": ("ZADD", "of_trace:mar11-t2", "1", "mar11-1"),
}


async def test_every_wound_of_a_trace_is_found(forest: TagUnderTest, redis_client: Redis) -> None:
    await forest.grown(1.0, 1.1)
    await forest.grown(1.2, trace_id="mar11-t1")
    await forest.made(await forest.selected(trace_id="mar11-t1"))
    await forest.selected(trace_id="mar11-t2")

    for wound, (command, short, *words) in WOUNDS.items():
        assert (await forest.told("/api/trace/audit", tag=TAG))["violations"] == []
        key = forest.lab.keys(*short.split(":"))
        with for_a_while(redis_client, {key}):
            await forest.lab.command(command, key, *words)

            found = await forest.told("/api/trace/audit", tag=TAG)
            assert not found["ok"], wound
            assert found["violations"], wound
            assert set(found["violations"]) <= set(await forest.faults()), wound


AGENTS = 12
MANY = {"traces.mode": "multi", "traces.target_traces": AGENTS, "traces.max_parallel": AGENTS}


async def test_selections_at_once_all_fit(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    select = Traces.select

    async def seen(self: Traces, decision: SelectionDecision, *request: object) -> object:
        answers.append(await select(self, decision, *request))  # type: ignore[arg-type]  # passed on as they come
        return answers[-1]

    monkeypatch.setattr(Traces, "select", seen)
    await open_tag(client, policy=MANY)

    selected = await asyncio.gather(
        *(told(client, "/api/trace/select", tag="mar11") for _ in range(AGENTS + 3))
    )

    assert sum(s["status"] == "selected" for s in selected) == AGENTS
    assert None not in answers
    assert len({s["trace_id"] for s in selected if s["status"] == "selected"}) == AGENTS
    assert (await told(client, "/api/trace/audit", tag="mar11"))["violations"] == []


def test_traces_stand_in_columns_that_are_used_again_and_what_a_node_joins_or_leaves_is_named() -> None:
    def node(number: int, trace: str | None, *parents: int, status: Any = "keep") -> Experiment:
        its = {"experiment_id": f"t-{number}", "description": f"idea {number}", "trace_id": trace}
        return experiment(number, **its, status=status, parent_ids=[f"t-{p}" for p in parents])

    def drawing(*nodes: Experiment) -> list[tuple[str, str]]:
        """The signs in the columns of each line, and its last words."""
        return [(line.partition("  t-")[0].rstrip(), line.rpartition("  ")[2]) for line in drawn(nodes)]

    roots = node(1, "t-t1"), node(2, "t-t2", status="discard")
    assert drawing(*roots, node(3, "t-t1", 1, status="crash"), node(4, "t-t2", 2)) == [
        *(("●", "idea 4"), ("│ ×", "idea 3"), ("○ │", "idea 2"), ("  ●", "idea 1")),
    ]
    merged = drawing(*roots, node(3, "t-t1", 1), node(4, "t-t1", 3, 2), node(5, "t-t1", 1))
    assert [said for _, said in merged][:3] == ["[from t-1]", "[joins t-3 and t-2]", "idea 3"]
    ended = drawing(*roots, node(3, "t-t3"), node(4, "t-t3", 3))
    assert [signs for signs, _ in ended] == ["●", "●", "○", "●"]
    alone = drawing(node(1, None), node(2, None, 1, status="running"), node(3, None))
    assert alone == [("●", "[a new root]"), ("·", "idea 2"), ("●", "idea 1")]
