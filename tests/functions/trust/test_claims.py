"""Claims: an agent's own results in a tag that the lab measures count only after a run of the lab."""

from __future__ import annotations

from typing import Any

import pytest

from functions.kernel.contract import On
from functions.kernel.table import table
from state.records import Experiment
from tests.functions.conftest import TagUnderTest
from tests.labs import begun, idea, told, waiting

ONE_BRANCH = {"mode": "multi", "target_traces": 1, "max_parallel": 9}


async def stats(tag: TagUnderTest) -> dict[str, int]:
    told_of = (await tag.summary())["stats"]
    return {name: told_of[name] for name in ("total", "kept", "discarded", "claimed")}


async def noise_df(tag: TagUnderTest) -> int:
    found = (await tag.summary())["noise"]
    return int(found["df"]) if found else 0


@pytest.mark.parametrize("keep_rule", ["strict", "confirmed"])
async def test_an_agent_s_number_is_no_keep_in_a_measured_tag(tag: TagUnderTest, keep_rule: str) -> None:
    await tag.open(keep_rule=keep_rule)
    await tag.trained(2.821, commit_sha="aaaaaaa")

    answer = await tag.claimed(0.0001)

    assert (answer["status"], answer["claimed"], answer["improved"]) == ("discard", True, False)
    assert (answer["action"], answer["base_commit_sha"]) == ("git_reset", "aaaaaaa")
    assert (answer["best_val_bpb"], answer["trust"], answer["near_miss"]) == (2.821, None, False)
    assert "only the lab's run of its code counts" in answer["reason"]
    assert answer["retest"]["retest_id"] == "mar11-2.2"
    assert await tag.best_id() == "mar11-1"
    assert await stats(tag) == {"total": 1, "kept": 1, "discarded": 0, "claimed": 1}
    run = await tag.experiment("mar11-2.2")
    assert (run["status"], run["retest_of"], run["seed"]) == ("queued", "mar11-2", answer["retest"]["seed"])
    waited = await tag.asked("/api/experiment/mar11-2/wait?timeout=0")
    assert (waited["status"], waited["action"]) == ("discard", "git_reset")
    assert "is a claim: the lab runs its code" in waited["next"]


async def test_a_false_claim_is_a_discard_by_what_the_lab_measures(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.trained(2.821)
    first = await tag.claimed(0.0001, description="wider")
    before = (await tag.told("/api/report/tsv", tag="mar11"))["tsv"].splitlines()

    await tag.measured("mar11-2.2", 2.83)
    after = (await tag.told("/api/report/tsv", tag="mar11"))["tsv"].splitlines()

    e = await tag.experiment("mar11-2")
    assert (e["status"], e["val_bpb"], e["reported"]) == ("discard", 2.83, 0.0001)
    assert (e["claimed"], e["measured_by"]) == (True, "mar11-2.2")
    assert await tag.best_id() == "mar11-1"
    assert await stats(tag) == {"total": 2, "kept": 1, "discarded": 1, "claimed": 0}
    [event] = await tag.events("experiment.refuted")
    assert (event["subject"], event["val_bpb"], event["reported"]) == ("mar11-2", 2.83, 0.0001)
    assert await noise_df(tag) == 0
    assert before[2].split("\t")[1:] == ["0.000000", "0.0", "discard", "wider (claimed 0.0001)"]
    assert after[2].split("\t")[1:] == ["2.830000", "0.0", "discard", "wider"]
    again = await tag.told("/api/experiment/complete", experiment_id="mar11-2", val_bpb=0.0001)
    assert again == first | {"replayed": True}


async def test_a_true_claim_is_promoted_and_confirmed_by_runs_of_the_lab_alone(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.trained(1.0)
    await tag.claimed(0.8, result={"training_seconds": 300.0, "peak_vram_mb": 1.0})

    await tag.measured("mar11-2.2", 0.9)

    e = await tag.experiment("mar11-2")
    assert (e["status"], e["val_bpb"], e["reported"], e["trust"]) == ("keep", 0.9, 0.8, "provisional")
    assert e["delta"] == pytest.approx(0.1)
    best = await tag.best()
    assert (best["experiment_id"], best["val_bpb"], best["claimed_n"]) == ("mar11-2", 0.9, 0)
    [event] = await tag.events("experiment.promoted")
    assert (event["subject"], event["status"], event["val_bpb"]) == ("mar11-2", "keep", 0.9)
    assert await stats(tag) == {"total": 2, "kept": 2, "discarded": 0, "claimed": 0}
    await tag.measured("mar11-2.3", 0.91)
    await tag.measured("mar11-1.2", 1.01)
    await tag.measured("mar11-1.3", 1.02)
    assert (await tag.experiment("mar11-2"))["trust"] == "confirmed"
    best = await tag.best()
    assert (best["claimed_bpb"], best["claimed_n"]) == (0.91, 1)
    assert await noise_df(tag) == 3


async def test_a_claim_that_is_no_progress_even_if_true_is_not_run(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.trained(1.0, commit_sha="aaaaaaa")
    for value, commit in ((1.0005, "bbbbbbb"), (0.5, "aaaaaaa")):  # the latter is the best's own code
        answer = await tag.claimed(value, commit_sha=commit)
        assert (answer["status"], answer["near_miss"], answer["retest"]) == ("discard", False, None)
    assert (await tag.told("/api/experiment/near-misses", tag="mar11"))["total"] == 0
    assert await noise_df(tag) == 0


async def checked_out(tag: TagUnderTest, name: str, **found: Any) -> Experiment:
    """The waiting run, as its worker has begun it and found out what code it is."""
    e = await begun(tag.process, name)
    source: dict[str, Any] = {"tree_id": "t" * 40, "patch": None, "differs": False, **found}
    assert await tag.experiments.note_source(e, attempt=e.attempt, fence=e.fence, **source)
    return e


async def test_a_claim_whose_files_are_the_best_s_is_no_progress_however_lucky_its_run(
    tag: TagUnderTest,
) -> None:
    await tag.open()
    first = (await tag.told("/api/experiment/submit", **idea()))["experiment_id"]
    await tag.told("/api/pool/dispatch")
    best = await checked_out(tag, first)
    await tag.report(best, 1.0)
    await tag.free(best)
    await tag.claimed(0.5, diff="sent")
    await tag.told("/api/pool/dispatch")
    run = await checked_out(tag, "mar11-2.2", patch=b"found", differs=True)
    before = await tag.faults()

    await tag.report(run, 0.75)
    await tag.judge("mar11-2.2")

    e = await tag.experiment("mar11-2")
    assert (e["status"], e["repeats_best"], e["judged_val_bpb"]) == ("discard", True, 0.875)
    assert (e["tree_id"], e["duplicate_of"], e["diff_differs"]) == ("t" * 40, "mar11-1", True)
    assert (await tag.shown("mar11-2"))["diff"] == "found"
    assert await tag.best_id() == "mar11-1"
    assert [before, await tag.faults()] == [[], []]


async def test_what_an_agent_runs_again_itself_is_no_evidence(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.trained(1.0)
    await tag.trained(0.9)
    retest = (await tag.told("/api/experiment/retest", experiment_id="mar11-2", train=False))["retest_id"]

    answer = await tag.told("/api/experiment/complete", experiment_id=retest, val_bpb=0.5)
    await tag.judge(retest)

    assert (answer["status"], answer["claimed"]) == ("measured", True)
    assert (await tag.shown("mar11-2"))["claim"]["claimed_n"] == 0
    assert (await tag.experiment("mar11-2"))["trust"] == "provisional"
    assert await noise_df(tag) == 0


@pytest.mark.parametrize(
    ("kind", "runs"), [("oom", 1), ("infra", 1), ("evaluator", 1), ("its worker was stopped", 2)]
)
async def test_a_claim_whose_code_fails_stays_and_is_not_run_again(
    tag: TagUnderTest, kind: str, runs: int
) -> None:
    await tag.open()
    await tag.trained(1.0)
    await tag.claimed(0.5)

    if runs == 1:
        await tag.broken("mar11-2.2", kind)
    else:
        await tag.told("/api/experiment/stop", experiment_id="mar11-2.2")
        await tag.judge("mar11-2.2")

    e = await tag.experiment("mar11-2")
    assert (e["status"], e["val_bpb"], e["retests"]) == ("discard", 0.5, runs)
    assert await stats(tag) == {"total": 1, "kept": 1, "discarded": 0, "claimed": 1}


async def test_a_claim_is_run_once_the_better_result_was_taken_back(tag: TagUnderTest) -> None:
    await tag.open(keep_rule="strict")
    await tag.trained(1.0)
    await tag.trained(0.5)
    await tag.claimed(0.75)
    before = (await tag.experiment("mar11-3"))["retests"]

    await tag.told("/api/experiment/retract", experiment_id="mar11-2", reason="a wrong unit")
    steps = await tag.judge("mar11-2")

    assert (before, steps) == (0, ["run mar11-3"])


async def test_the_runs_of_claims_wait_in_their_agent_s_turn(tag: TagUnderTest) -> None:
    await tag.open(keep_rule="strict")
    await tag.trained(1.0)
    await tag.told("/api/tag/pause", tag="mar11")
    for value in (0.5, 0.4, 0.3):
        await tag.claimed(value, agent="eve")
    for agent in ("ann", "bob"):
        await tag.told("/api/experiment/submit", **idea(agent=agent))

    await tag.told("/api/tag/unpause", tag="mar11")

    waits = await waiting(tag.lab)
    assert [e.experiment_id for e in waits] == ["mar11-2.2", "mar11-5", "mar11-6", "mar11-3.2", "mar11-4.2"]
    assert {e.priority for e in waits} == {0}
    await tag.told("/api/experiment/stop", experiment_id="mar11-4.2")
    await tag.told("/api/experiment/submit", **idea(agent="eve"))
    assert [e.experiment_id for e in await waiting(tag.lab)][-2:] == ["mar11-3.2", "mar11-7"]


async def test_of_a_claim_the_lab_has_one_run_at_a_time(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.trained(1.0)
    await tag.claimed(0.5)

    while_it_waits = await tag.refused(409, "/api/experiment/retest", experiment_id="mar11-2")
    await tag.measured("mar11-2.2", 0.75, unjudged=True)
    before_it_is_judged = await tag.refused(409, "/api/experiment/retest", experiment_id="mar11-2")
    await tag.judge("mar11-2.2")
    again = await tag.told("/api/experiment/retest", experiment_id="mar11-2")

    assert while_it_waits["retest_id"] == before_it_is_judged["retest_id"] == "mar11-2.2"
    assert again["retest_id"] in ("mar11-2.3", "mar11-2.4")


async def test_a_run_that_ends_has_the_claims_run_that_its_budget_held_back(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.trained(1.0)
    waits = (await tag.told("/api/experiment/submit", **idea()))["experiment_id"]
    for value in (0.6, 0.5, 2.0):
        await tag.tried(value)
    await tag.told("/api/tag/budget", tag="mar11", gpu_seconds=1000)
    held_back = await tag.told("/api/experiment/judge-retests", tag="mar11")

    await tag.told("/api/experiment/stop", experiment_id=waits)
    steps = await tag.judge(waits)

    assert (held_back["steps"], steps) == ([], ["run mar11-3"])


@pytest.mark.parametrize("is_measured", [False, True])
async def test_a_claim_can_be_taken_back(tag: TagUnderTest, is_measured: bool) -> None:
    await tag.open()
    await tag.trained(1.0)
    await tag.claimed(0.5)
    if is_measured:
        await tag.measured("mar11-2.2", 0.75)

    await tag.told("/api/experiment/retract", experiment_id="mar11-2", reason="a wrong unit")

    assert (await tag.experiment("mar11-2"))["status"] == "retracted"
    assert await tag.best_id() == "mar11-1"
    assert await stats(tag) == {"total": 1, "kept": 1, "discarded": 0, "claimed": 0}
    await tag.judge("mar11-2")


@pytest.mark.parametrize(("value", "base"), [(0.75, "mar11-2"), (0.95, "mar11-3")])
async def test_a_claim_measured_late_meets_the_newer_base(tag: TagUnderTest, value: float, base: str) -> None:
    await tag.open(keep_rule="strict", traces=ONE_BRANCH)
    await tag.trained(1.0, selection_id=await selected(tag))
    await tag.claimed(0.5, selection_id=await selected(tag))
    await tag.trained(0.9, selection_id=await selected(tag))

    await tag.measured("mar11-2.2", value)

    [trace] = (await tag.traces()).values()
    assert (trace["tip"], trace["base"]) == ("mar11-3", base)
    assert (await tag.experiment("mar11-2"))["branch_improved"] is (base == "mar11-2")


@pytest.mark.parametrize(("value", "became"), [(0.75, "merged"), (1.05, "live")])
async def test_a_measured_merge_ends_its_source(tag: TagUnderTest, value: float, became: str) -> None:
    await tag.open(traces={"mode": "multi", "target_traces": 2, "max_parallel": 9})
    for base in (1.0, 1.1):
        await tag.trained(base, selection_id=await selected(tag))
    merge = await tag.told("/api/trace/merge", tag="mar11")
    await tag.claimed(0.5, selection_id=merge["selection_id"])
    before = [t["status"] for t in (await tag.traces()).values()]

    await tag.measured("mar11-3.2", value)

    into, source = (await tag.traces()).values()
    assert before == ["live", "live"]
    assert (await tag.told("/api/trace/audit", tag="mar11"))["violations"] == []
    assert (into["status"], into["tip"]) == ("live", "mar11-3")
    assert into["base"] == ("mar11-3" if became == "merged" else "mar11-1")
    assert source["status"] == became
    assert source["merged_into"] == (into["trace_id"] if became == "merged" else None)


async def test_a_branch_shows_a_claim_as_one_and_takes_its_value_for_nothing(tag: TagUnderTest) -> None:
    await tag.open(traces=ONE_BRANCH)
    await tag.trained(1.0, selection_id=await selected(tag))
    await tag.tried(1.0005, selection_id=await selected(tag))
    selection = await selected(tag)

    context = await tag.told("/api/trace/context", tag="mar11", selection_id=selection)
    suggestion = await tag.told("/api/search/suggest", tag="mar11", selection_id=selection)
    graph = await tag.told("/api/trace/list", tag="mar11")

    assert context["branch"]["ancestors"] == ["mar11-1", "mar11-2"]
    [failure] = context["branch"]["failures"]
    assert (failure["experiment_id"], failure["claimed"]) == ("mar11-2", True)
    assert (suggestion["near_misses_available"], suggestion["recent_bpb_trend"]) == (0, [1.0])
    assert {n["id"]: n["claimed"] for n in graph["nodes"]} == {"mar11-1": False, "mar11-2": True}

    await tag.tried(0.0001, selection_id=selection)
    context = await told(
        tag.client, "/api/trace/context", tag="mar11", selection_id=await selected(tag), siblings="always"
    )
    assert context["branch"]["best"]["experiment_id"] == "mar11-1"


async def selected(tag: TagUnderTest) -> str:
    return str((await tag.told("/api/trace/select", tag="mar11"))["selection_id"])


async def test_a_number_that_comes_before_the_lab_s_baseline_has_ended_is_a_claim(tag: TagUnderTest) -> None:
    await tag.open(baseline_first=True)
    await tag.told("/api/experiment/baseline", tag="mar11")

    answer = await tag.claimed(0.0001, result={"gpu_class": "quantum"})
    await tag.measured("mar11-1", 2.8)
    await tag.measured("mar11-2.2", 2.9)

    assert (answer["status"], answer["claimed"]) == ("discard", True)
    assert await tag.best_id() == "mar11-1"
    e = await tag.experiment("mar11-2")
    assert (e["status"], e["val_bpb"], e["gpu_class"]) == ("discard", 2.9, "H100")


async def test_claims_are_judged_by_the_event_of_a_keep_s_fall_though_killed(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.baseline(1.001, 0.9995)
    await tag.trained(0.9960)
    claim = (await tag.claimed(0.9970))["experiment_id"]
    await tag.measured("mar11-2.2", 1.003)
    assert await tag.standing("mar11-2") == ("discard", "demoted")
    assert (await tag.shown(claim))["retests"] == []

    heard = {e for t in table()["experiment::judge_retests"].triggers if isinstance(t, On) for e in t.events}
    assert heard >= {"experiment.demoted", "experiment.confirmed"}
    [fall] = await tag.events("experiment.demoted")
    await tag.judge(fall["subject"])

    assert (await tag.shown(claim))["retests"]


async def test_a_claim_beside_its_branch_is_not_built_on_when_it_is_measured(tag: TagUnderTest) -> None:
    one = {"mode": "multi", "target_traces": 1, "max_parallel": 9, "max_inflight_per_trace": 2}
    await tag.open(traces=one)
    await tag.trained(1.0, selection_id=await selected(tag))
    first, second = await selected(tag), await selected(tag)
    await tag.claimed(1.5, selection_id=first)
    await tag.claimed(0.5, selection_id=second)

    await tag.measured("mar11-3.2", 0.75)

    [trace] = (await tag.traces()).values()
    assert (trace["tip"], trace["base"], trace["kept"]) == ("mar11-2", "mar11-1", 2)
