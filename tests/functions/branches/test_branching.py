"""Branches: forks, merges, ends, demotions and lost workers, in single and multi mode."""

from __future__ import annotations

from typing import Any

import pytest

from functions.branches import context
from state.experiments import Experiments
from tests.functions.conftest import TagUnderTest
from tests.labs import add_gpu, begun, expire, idea, open_tag

TAG = "mar11"


async def test_a_result_after_its_lease_is_recorded_and_frees_nothing_twice(tag: TagUnderTest) -> None:
    await tag.branch(target=1)
    await tag.grown(1.0)
    late = await tag.made(await tag.selected())
    await tag.lab.command("ZADD", tag.lab.keys("open"), "1", late)

    other = await tag.selected()  # finds the silent agent by itself
    answer = await tag.complete(late, 0.9)

    assert (answer["status"], answer["improved"]) == ("keep", True)
    [trace] = (await tag.traces()).values()
    assert (trace["tip"], trace["in_flight"]) == (late, 1)
    verdict = await tag.complete(await tag.made(other), 0.8)
    assert (await tag.experiment(verdict["experiment_id"]))["forked"] is True


async def test_who_selects_nothing_builds_on_the_branch_of_the_best(tag: TagUnderTest) -> None:
    await tag.branch()
    await tag.grown(1.0, 0.9)

    verdict = await tag.tried(0.95)
    named = await tag.tried(0.8, parent_id="mar11-1")

    implied = await tag.experiment(verdict["experiment_id"])
    assert (implied["trace_id"], implied["parent_ids"]) == ("mar11-t2", ["mar11-2"])
    assert implied["local_selection"] == [2]
    assert (verdict["status"], verdict["branch_improved"]) == ("discard", False)
    assert (named["status"], named["branch_improved"]) == ("keep", True)
    traces = await tag.traces()
    assert [t["tip"] for t in traces.values()] == [named["experiment_id"], verdict["experiment_id"]]


async def test_a_kept_merge_ends_the_other_traces(tag: TagUnderTest) -> None:
    await tag.branch()
    await tag.grown(1.0, 1.1)
    chosen = await tag.merge()

    verdict = await tag.complete(await tag.made(chosen), 0.9)

    assert (chosen["kind"], chosen["trace_id"], chosen["sources"]) == ("merge", "mar11-t1", ["mar11-t2"])
    assert chosen["parent_ids"] == chosen["combines"] == ["mar11-1", "mar11-2"]
    assert chosen["base_experiment_id"] == "mar11-1"
    traces = await tag.traces()
    assert (traces["mar11-t1"]["tip"], traces["mar11-t1"]["base"]) == (verdict["experiment_id"],) * 2
    assert (traces["mar11-t2"]["status"], traces["mar11-t2"]["merged_into"]) == ("merged", "mar11-t1")
    assert [e["subject"] for e in await tag.events("trace.ended")] == ["mar11-t2"]
    context = await tag.told("/api/trace/context", tag=TAG, parent_ids=[verdict["experiment_id"]])
    assert context["branch"]["ancestors"] == ["mar11-1", "mar11-2", "mar11-3"]


async def test_a_merge_that_is_kept_after_its_epoch_ends_no_trace(tag: TagUnderTest) -> None:
    await tag.branch()
    await tag.grown(1.0, 1.1)
    late = await tag.made(await tag.merge())
    await tag.told("/api/trace/configure", tag=TAG, new_epoch=True)
    assert (await tag.complete(late, 0.9))["status"] == "keep"
    assert [t["status"] for t in (await tag.traces()).values()] == ["live", "live"]


async def test_a_merge_of_near_misses_goes_on_from_the_tip_of_its_trace(tag: TagUnderTest) -> None:
    await tag.branch()
    await tag.grown(1.0, 1.01)
    values = {"mar11-t1": 1.0015, "mar11-t2": 1.0105}
    near = [(await tag.grown(value, trace_id=t))["experiment_id"] for t, value in values.items()]
    tip = (await tag.grown(0.999, trace_id="mar11-t1"))["experiment_id"]
    await tag.told("/api/search/set-policy", tag=TAG, policy={"near_miss_margin": 0.02})

    chosen = await tag.merge(selector="near_miss", into="mar11-t1")
    merged = await tag.made(chosen)
    await tag.complete(merged, 0.99)
    following = await tag.selected(trace_id="mar11-t1")

    assert (chosen["parent_ids"], chosen["combines"]) == ([tip, *near], near)
    assert following["parent_ids"] == [merged]
    context = await tag.told("/api/trace/context", tag=TAG, selection_id=following["selection_id"])
    assert context["branch"]["base"]["experiment_id"] == following["base_experiment_id"] == merged
    assert set(near) | {tip} <= set(context["branch"]["ancestors"])


async def test_nodes_that_are_merged_are_built_on_the_best_keep_above_them(tag: TagUnderTest) -> None:
    await tag.branch()
    await tag.grown(1.0, 1.1, 0.9)
    chosen = await tag.selected(parent_ids=["mar11-2", "mar11-1"])
    context = await tag.told("/api/trace/context", tag=TAG, selection_id=chosen["selection_id"])
    assert (await tag.traces())["mar11-t1"]["base"] == "mar11-3"
    assert chosen["base_experiment_id"] == context["branch"]["base"]["experiment_id"] == "mar11-1"
    assert chosen["base_commit_sha"] == context["base_commit_sha"]


async def test_a_trace_dies_of_crashes_and_a_branch_from_a_keep_replaces_it(tag: TagUnderTest) -> None:
    await tag.branch()
    await tag.grown(1.0, 1.1)
    better = await tag.grown(0.9, trace_id="mar11-t1")
    for _ in range(3):
        name = await tag.made(await tag.selected(trace_id="mar11-t2"))
        await tag.told("/api/experiment/crash", experiment_id=name, error="boom")

    chosen = await tag.selected()

    ended = (await tag.traces())["mar11-t2"]
    assert (ended["status"], ended["reason"]) == ("dead", "3 nodes in a row have crashed")
    assert (chosen["kind"], chosen["trace_id"], chosen["parent_ids"]) == ("branch", "mar11-t3", ["mar11-1"])
    assert better["status"] == "keep"  # a trace stands on it: the branch begins at the keep before
    await tag.complete(await tag.made(chosen), 1.2)
    born = (await tag.traces())["mar11-t3"]
    assert (born["status"], born["origin"], born["base"]) == ("live", "mar11-1", "mar11-1")


async def test_a_run_whose_worker_dies_gives_its_selection_back(tag: TagUnderTest) -> None:
    await tag.branch(target=1)
    await tag.told("/api/search/set-policy", tag=TAG, policy={"max_attempts": 1})
    await tag.grown(1.0)
    await add_gpu(tag.client)
    chosen = await tag.selected()
    submitted = await tag.told("/api/experiment/submit", **idea(TAG, selection_id=chosen["selection_id"]))
    await tag.told("/api/pool/dispatch")
    e = await begun(tag.process, submitted["experiment_id"])
    assert (await selected_or_wait(tag))["reason"] == "all_busy"

    await expire(tag.lab, "host:gpu0")
    await tag.told("/api/pool/sweep")

    ended = await Experiments(tag.lab).get(e.experiment_id)
    assert ended.status == "lost"
    again = await tag.selected()
    assert (again["parent_ids"], again["trace_id"]) == (["mar11-1"], chosen["trace_id"])
    assert [e["subject"] for e in await tag.events("selection.expired")] == [chosen["selection_id"]]


async def selected_or_wait(tag: TagUnderTest, **more: Any) -> dict[str, Any]:
    return await tag.told("/api/trace/select", tag=TAG, **more)


async def test_there_is_nothing_to_select_while_a_run_could_not_begin(tag: TagUnderTest) -> None:
    await tag.branch()
    await tag.told("/api/tag/pause", tag=TAG)
    paused = await selected_or_wait(tag)
    await tag.told("/api/tag/unpause", tag=TAG)
    await tag.told("/api/tag/budget", tag=TAG, runs=0)
    spent = await selected_or_wait(tag)

    assert [(a["status"], a["reason"]) for a in (paused, spent)] == [("wait", "paused"), ("wait", "budget")]
    assert "paused" in paused["hint"]
    assert "budget" in spent["hint"]


async def test_there_are_as_many_slots_as_live_gpus_unless_told(tag: TagUnderTest) -> None:
    await open_tag(tag.client, policy={"traces": {"mode": "multi", "target_traces": 9}})
    for n in range(2):
        await add_gpu(tag.client, f"g{n}")
    answers = [await selected_or_wait(tag) for _ in range(3)]
    assert [a["status"] for a in answers] == ["selected", "selected", "wait"]
    assert answers[-1]["reason"] == "no_slot"


async def test_a_branch_stands_on_the_discard_that_rises_when_its_base_is_demoted(tag: TagUnderTest) -> None:
    await tag.branch(target=1, keep_rule="confirmed")
    for gpu in ("host:gpu0", "host:gpu1", "host:gpu2"):
        await add_gpu(tag.client, gpu)
    first = await tag.trained_from(await tag.selected(), 1.001)
    for nth, value in enumerate((0.9995, 1.0), 2):
        await tag.measured(f"{first}.{nth}", value)
    lucky, hidden, later = [
        await tag.trained_from(await tag.selected(), value) for value in (0.996, 0.997, 1.5)
    ]
    await tag.measured(f"{lucky}.2", 1.003)
    before = await tag.selected()

    await tag.measured(f"{hidden}.2", 0.9975)

    assert (await tag.experiment(hidden))["trust"] == "confirmed"
    [trace] = (await tag.traces()).values()
    assert (trace["base"], trace["tip"], trace["kept"]) == (hidden, later, 2)
    submitted = await tag.trained_from(before, 0.9985)
    assert before["base_experiment_id"] == first
    assert (await tag.experiment(submitted))["branch_improved"] is False
    assert (await tag.selected())["base_experiment_id"] == hidden


@pytest.mark.parametrize("beside", [False, True], ids=["on the branch", "a leaf beside it"])
async def test_a_discard_that_rises_replaces_a_retracted_base(tag: TagUnderTest, beside: bool) -> None:
    await tag.branch(target=1, max_inflight_per_trace=2)
    first = (await tag.grown(1.0))["experiment_id"]
    one, two = [await tag.made(await tag.selected()) for _ in range(2)]
    if beside:
        await tag.told("/api/experiment/crash", experiment_id=one, error="boom")
    await tag.complete(two, 1.1)
    await tag.told("/api/experiment/retract", experiment_id=first, reason="a mistake")

    assert (await tag.experiment(two))["status"] == "keep"
    [trace] = (await tag.traces()).values()
    assert (trace["base"], trace["kept"]) == (None if beside else two, 1)


async def test_a_tag_with_a_history_takes_its_own_line_along_when_it_branches(tag: TagUnderTest) -> None:
    policy = {"baseline_first": False, "traces": {"target_traces": 2, "max_parallel": 9}}
    await open_tag(tag.client, base_commit="abc1234", policy=policy)
    for value in (1.0, 0.9, 0.95):
        await tag.tried(value)

    await tag.switch("multi")

    own = (await tag.traces())["mar11-t0"]
    assert (own["status"], own["root"], own["tip"], own["base"]) == ("live", "mar11-1", "mar11-3", "mar11-2")
    one, two = await tag.selected(), await tag.selected()
    assert (one["kind"], two["kind"], two["trace_id"]) == ("new_root", "extend", "mar11-t0")
    assert (two["parent_ids"], two["base_experiment_id"]) == (["mar11-3"], "mar11-2")


async def test_switching_to_one_trace_and_back_loses_nothing(tag: TagUnderTest) -> None:
    await tag.branch()
    await tag.grown(1.0, 1.1)
    await tag.grown(1.05, trace_id="mar11-t2")
    before = {
        name: (t["tip"], t["base"], t["status"], t["length"]) for name, t in (await tag.traces()).items()
    }

    await tag.switch("single")
    inside = await tag.selected()
    verdict = await tag.complete(await tag.made(inside), 0.9)
    await tag.switch("multi")

    assert (inside["trace_id"], inside["parent_ids"]) == ("mar11-t0", ["mar11-3"])
    assert (verdict["status"], verdict["improved"]) == ("keep", True)
    after = await tag.traces()
    own = after.pop("mar11-t0")
    assert {name: (t["tip"], t["base"], t["status"], t["length"]) for name, t in after.items()} == before
    # There are two already: it stands aside, with all that the tag has, until there is room.
    assert (own["status"], own["tip"], own["base"]) == ("closed", *[verdict["experiment_id"]] * 2)
    await tag.told("/api/trace/close", tag=TAG, trace_id="mar11-t1")
    await tag.told("/api/trace/reopen", tag=TAG, trace_id="mar11-t0")
    assert (await tag.selected(trace_id="mar11-t0"))["parent_ids"] == [verdict["experiment_id"]]


async def test_a_suggestion_for_a_selection_speaks_of_its_branch(tag: TagUnderTest) -> None:
    await tag.branch()
    await tag.grown(1.0, 1.2)
    await tag.grown(1.2011, trace_id="mar11-t2")
    chosen = await tag.selected(trace_id="mar11-t2")

    of_branch = await tag.told("/api/search/suggest", tag=TAG, selection_id=chosen["selection_id"])
    of_tag = await tag.told("/api/search/suggest", tag=TAG)

    assert of_branch["base_commit_sha"] == chosen["base_commit_sha"]
    assert (of_branch["trace_id"], of_branch["parent_ids"]) == ("mar11-t2", ["mar11-3"])
    assert (of_branch["near_misses_available"], of_branch["recent_bpb_trend"]) == (1, [1.2, 1.2011])
    assert "mar11-2" in of_branch["suggestions"][0]
    assert "mar11-1" in of_tag["suggestions"][0]
    assert (of_tag["near_misses_available"], of_tag["trace_id"]) == (0, None)

    await tag.told("/api/trace/configure", tag=TAG, target_traces=3)
    root = await tag.selected(intent="new_root")
    merge = await tag.merge()
    of_root, of_merge = [
        await tag.told("/api/search/suggest", tag=TAG, selection_id=each["selection_id"])
        for each in (root, merge)
    ]
    assert "unlike the first changes of the other branches: mar11-1" in of_root["suggestions"][0]
    assert all(name in of_merge["suggestions"][0] for name in ("mar11-1", "Combine"))
    assert of_merge["base_commit_sha"] == merge["base_commit_sha"]


async def test_with_several_branches_the_next_step_is_to_select(tag: TagUnderTest) -> None:
    traces = {"mode": "multi", "max_parallel": 9}
    opened = await tag.told("/api/experiment/setup", tag=TAG, policy={"traces": traces})
    empty = await tag.told("/api/report/brief", tag=TAG)
    chosen = await tag.selected(agent="ann")
    mine = await tag.told("/api/report/brief", tag=TAG, agent="ann")
    of_it = await tag.told("/api/search/suggest", tag=TAG, selection_id=chosen["selection_id"])
    bobs = (await tag.selected(agent="bob"))["selection_id"]
    [found] = (await tag.told("/api/report/brief", tag=TAG, agent="ann"))["open_selections"]
    selected = {"selection_id": chosen["selection_id"], "agent": "ann", "trace_id": "mar11-t1"}
    assert found.items() >= (selected | {"kind": "new_root"}).items()
    await tag.told("/api/trace/release", selection_id=bobs)
    name = await tag.made(chosen, agent="ann")
    assert (await tag.told("/api/report/brief", tag=TAG, agent="ann"))["open_selections"] == []
    await tag.complete(name, 1.0)
    after = [await tag.told(path, tag=TAG) for path in ("/api/report/brief", "/api/search/suggest")]

    assert {a["trace_mode"] for a in (opened, empty, mine, of_it, *after)} == {"multi"}
    assert all("POST /api/trace/select" in a["next"] for a in (opened, empty, *after))
    assert "baseline" in opened["next"]
    assert chosen["selection_id"] in mine["next"]
    assert chosen["selection_id"] in of_it["next"]


async def test_whoever_selected_is_told_of_the_branch_and_to_select_again(tag: TagUnderTest) -> None:
    await tag.branch()
    await tag.grown(1.0)
    verdict = await tag.grown(1.1)
    outcome = await tag.asked(f"/api/experiment/{verdict['experiment_id']}/wait?timeout=0")
    assert (outcome["status"], outcome["improved"], outcome["branch_improved"]) == ("keep", False, True)
    assert outcome["next"].endswith("Select what the next one is made from: POST /api/trace/select.")


async def test_crashes_of_an_epoch_that_is_over_kill_no_trace(tag: TagUnderTest) -> None:
    await tag.branch(target=1, max_inflight_per_trace=3)
    await tag.grown(1.0)
    late = [await tag.made(await tag.selected()) for _ in range(3)]
    await tag.told("/api/trace/configure", tag=TAG, new_epoch=True)
    for name in late:
        await tag.told("/api/experiment/crash", experiment_id=name, error="boom")
    [trace] = (await tag.traces()).values()
    assert (trace["status"], trace["length"], trace["tip"]) == ("live", 4, "mar11-1")


CONTRADICTIONS: list[dict[str, Any]] = [
    *({"trace_id": "mar11-t1", "intent": intent} for intent in ("new_root", "branch", "merge")),
    {"trace_id": "mar11-t1", "parent_ids": ["mar11-1"]},
    {"intent": "new_root", "parent_ids": ["mar11-1"]},
    {"intent": "extend", "parent_ids": ["mar11-1", "mar11-2"]},
]


async def test_a_wish_or_a_policy_that_contradicts_itself_is_refused(tag: TagUnderTest) -> None:
    await tag.branch(target=3)
    await tag.grown(1.0, 1.1)
    for wish in CONTRADICTIONS:
        await tag.refused(422, "/api/trace/select", tag=TAG, **wish)
    for name in ("lease_ttl_s", "target_traces", "max_parallel", "stale_after"):
        await tag.refused(422, "/api/trace/configure", tag=TAG, **{name: 10**30})
    assert (await tag.told("/api/trace/list", tag=TAG))["open_selections"] == 0
    crashed = await tag.made(await tag.selected())
    await tag.told("/api/experiment/crash", experiment_id=crashed, error="boom")
    assert (await tag.refused(409, "/api/trace/merge", tag=TAG, into="mar11-t3"))["code"] == "one_base"


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


async def test_what_was_tried_beside_stays_told(tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
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
