"""The baseline first: the base commit's own code runs before anything else that the lab trains."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from functions.process.lifecycle import Process
from state.experiments import Experiments
from state.pool import Pool
from state.records import Experiment
from tests.labs import (
    add_gpu,
    asked,
    begun,
    events_of,
    idea,
    open_tag,
    refused,
    registered,
    silence,
    told,
    tried,
    waiting,
)

BASE = "abc1234abc1234abc1234abc1234abc1234abc12"
GPUS = ("host:gpu0", "host:gpu1", "host:gpu2", "host:gpu3")


async def opened(client: httpx.AsyncClient, *, gpus: int = 1, **policy: Any) -> None:
    await open_tag(client, base_commit=BASE, policy=policy)
    for gpu in GPUS[:gpus]:
        await add_gpu(client, gpu)


async def submitted(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    return await told(client, "/api/experiment/submit", **idea(**changes))


async def leased(client: httpx.AsyncClient) -> list[str]:
    return sorted((await told(client, "/api/pool/dispatch"))["leased"])


async def ran(client: httpx.AsyncClient, process: Process, value: float, **changes: Any) -> dict[str, Any]:
    """The verdict on a new experiment that a worker trained."""
    name = str((await submitted(client, **changes))["experiment_id"])
    await leased(client)
    return await ended(client, process, name, value)


async def ended(
    client: httpx.AsyncClient, process: Process, name: str, value: float | None
) -> dict[str, Any]:
    """A worker runs this leased experiment and reports its value; None is a crash."""
    e = await begun(process, name)
    who = {"experiment_id": name, "attempt": e.attempt, "fence": e.fence}
    if value is None:
        answer = await told(client, "/api/experiment/crash", **who, error="boom")
    else:
        answer = await told(
            client, "/api/experiment/complete", **who, val_bpb=value, gpu_class="H100", budget_seconds=300
        )
    assert e.gpu_id is not None
    await Pool(process.lab).release(e.gpu_id, name, e.fence, proven=True)
    return answer


async def found(process: Process, name: str) -> Experiment:
    return await Experiments(process.lab).get(name)


async def audited(client: httpx.AsyncClient) -> list[str]:
    violations: list[str] = (await told(client, "/api/lab/audit"))["violations"]
    return violations


async def test_the_first_submit_brings_the_baseline_which_alone_is_dispatched(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)

    ours = await submitted(client)
    another = await submitted(client, agent="bob")

    assert (ours["experiment_id"], another["experiment_id"]) == ("mar11-2", "mar11-3")
    assert "waits for its baseline mar11-1" in ours["next"]
    assert ours["hint"] is not None
    baseline = (await asked(client, "/api/experiment/mar11-1"))["experiment"]
    assert (baseline["baseline"], baseline["commit_sha"], baseline["status"]) == (True, BASE, "queued")
    assert await leased(client) == ["mar11-1"]
    assert await leased(client) == []
    assert await audited(client) == []

    answer = await ended(client, process, "mar11-1", 1.0)

    assert (answer["status"], answer["improved"], answer["action"]) == ("keep", True, "keep_commit")
    assert await leased(client) == ["mar11-2"]
    assert (await asked(client, "/api/experiment/mar11-3/wait?timeout=0"))["queue"]["position"] == 1
    assert [e["lifted"] for e in await events_of(process, "tag.resumed")] == ["baseline"]
    assert await audited(client) == []


async def test_the_baseline_counts_neither_as_kept_nor_in_a_keep_rate(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await submitted(client)
    await leased(client)
    await ended(client, process, "mar11-1", 1.0)
    await leased(client)
    await ended(client, process, "mar11-2", 0.9)

    summary = await told(client, "/api/report/summary", tag="mar11")

    stats = summary["stats"]
    assert (stats["total"], stats["kept"], stats["keep_rate"]) == (2, 1, 1.0)
    assert summary["categories"] == {"architecture": {"total": 1, "kept": 1}}
    assert (await asked(client, "/api/experiment/mar11-2"))["experiment"]["compared_with"] == "mar11-1"
    assert await audited(client) == []


async def test_the_base_commit_itself_becomes_the_baseline(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)

    first = await submitted(client, commit_sha=BASE[:10], diff="", config_delta={"SEED": 3})
    await submitted(client, commit_sha=BASE)

    assert first["experiment_id"] == "mar11-1"
    assert [e.experiment_id for e in await waiting(process.lab)] == ["mar11-1"]
    assert (await found(process, "mar11-1")).baseline
    assert not (await found(process, "mar11-2")).baseline
    assert first["hint"] is None


async def test_a_baseline_that_fails_opens_the_gate_and_is_told(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await submitted(client)
    await leased(client)
    await ended(client, process, "mar11-1", None)

    assert await leased(client) == ["mar11-2"]
    assert (await found(process, "mar11-1")).status == "crash"
    assert (await submitted(client))["experiment_id"] == "mar11-3"
    told_of = [e["experiment_id"] for e in await events_of(process, "experiment.finished")]
    assert told_of == ["mar11-1"]
    assert await audited(client) == []


async def test_a_stopped_baseline_opens_the_gate_and_the_next_submit_brings_another(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await submitted(client, agent="ann")
    await told(client, "/api/experiment/stop", experiment_id="mar11-1")
    assert await leased(client) == ["mar11-2"]
    assert await audited(client) == []
    brief = await told(client, "/api/report/brief", tag="mar11", agent="bob")

    assert (await submitted(client))["experiment_id"] == "mar11-4"

    assert "the lab runs the unchanged train.py" in brief["next"]
    assert (await found(process, "mar11-3")).baseline
    await ended(client, process, "mar11-2", 0.9)
    assert await leased(client) == ["mar11-3"]
    assert await audited(client) == []
    await ended(client, process, "mar11-3", 1.0)
    assert await leased(client) == ["mar11-4"]
    assert (await told(client, "/api/experiment/baseline", tag="mar11"))["baseline_id"] == "mar11-3"
    assert await audited(client) == []


async def test_ideas_that_were_let_in_wait_again_behind_the_next_baseline_each_in_its_place(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    for agent in ("ann", "bob"):
        await submitted(client, agent=agent)
    await submitted(client, agent="eve", gpu_id=GPUS[0])
    await told(client, "/api/experiment/stop", experiment_id="mar11-1")
    await add_gpu(client, GPUS[0])
    await told(client, "/api/pool/drain", gpu_id=GPUS[0])
    assert await leased(client) == []
    assert [e.experiment_id for e in await waiting(process.lab)] == ["mar11-2", "mar11-3"]

    later = await submitted(client, agent="ann", commit_sha=BASE)

    assert (later["experiment_id"], (await found(process, "mar11-5")).baseline) == ("mar11-5", True)
    assert [e.experiment_id for e in await waiting(process.lab)] == ["mar11-5"]
    assert await audited(client) == []
    await told(client, "/api/pool/drain", gpu_id=GPUS[0], undo=True)
    assert await leased(client) == ["mar11-5"]
    await ended(client, process, "mar11-5", 1.0)
    assert await leased(client) == ["mar11-2"]
    assert [e.experiment_id for e in await waiting(process.lab)] == ["mar11-3"]
    assert [e.experiment_id for e in await waiting(process.lab, GPUS[0])] == ["mar11-4"]
    assert await audited(client) == []


async def test_a_registered_base_commit_becomes_the_baseline_that_what_waits_waits_for(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client, baseline_first=False)
    await submitted(client)
    await told(client, "/api/search/set-policy", tag="mar11", policy={"baseline_first": True})
    base = await registered(client, commit_sha=BASE)

    await told(client, "/api/gpu/train", experiment_id=base)

    assert await audited(client) == []
    assert await leased(client) == [base]
    await ended(client, process, base, 1.0)
    assert await leased(client) == ["mar11-1"]


async def test_after_a_result_a_stopped_baseline_is_not_brought_again(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await submitted(client)
    await told(client, "/api/experiment/stop", experiment_id="mar11-1")
    await leased(client)
    await ended(client, process, "mar11-2", 0.9)

    assert (await submitted(client))["experiment_id"] == "mar11-3"


async def test_gpus_that_stand_idle_run_the_baseline_on_further_seeds(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client, gpus=4, baseline_repeats=2)
    await told(client, "/api/tag/budget", tag="mar11", runs=10)
    await submitted(client)

    assert await leased(client) == ["mar11-1", "mar11-1.2", "mar11-1.3"]
    assert await leased(client) == []
    for name, value in (("mar11-1.2", 1.001), ("mar11-1", 1.0), ("mar11-1.3", 0.999)):
        await ended(client, process, name, value)

    summary = await told(client, "/api/report/summary", tag="mar11")
    assert (summary["noise"]["df"], summary["noise"]["sigma"]) == (2, pytest.approx(0.001))
    assert summary["budget"]["runs"]["spent"] == 3
    assert await leased(client) == ["mar11-2"]
    assert (await ended(client, process, "mar11-2", 0.9))["p_better"] > 0.99
    assert await audited(client) == []


async def test_a_budget_without_room_for_repeats_has_none(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client, gpus=2)
    await told(client, "/api/tag/budget", tag="mar11", runs=2)
    await submitted(client)

    assert await leased(client) == ["mar11-1"]
    await ended(client, process, "mar11-1", 1.0)
    assert await leased(client) == ["mar11-2"]


async def test_a_budget_without_room_for_the_baseline_refuses_the_submit(client: httpx.AsyncClient) -> None:
    await opened(client)
    await told(client, "/api/tag/budget", tag="mar11", runs=0)

    await refused(client, 409, "/api/experiment/submit", **idea())

    assert (await told(client, "/api/experiment/history", tag="mar11"))["total"] == 0


async def test_many_first_submits_at_once_bring_one_baseline(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)

    answers = await asyncio.gather(*(submitted(client, agent=f"a{n}") for n in range(16)))

    names = {answer["experiment_id"] for answer in answers}
    flagged = [
        e for e in await Experiments(process.lab).many([f"mar11-{n}" for n in range(1, 18)]) if e.baseline
    ]
    assert len(names) == 16
    assert [e.experiment_id for e in flagged] == ["mar11-1"]
    assert "mar11-1" not in names
    assert await audited(client) == []


@pytest.mark.parametrize("paused_first", [True, False])
async def test_a_pause_and_the_baseline_hold_back_each_for_itself(
    client: httpx.AsyncClient, process: Process, paused_first: bool
) -> None:
    await opened(client)
    if paused_first:
        await told(client, "/api/tag/pause", tag="mar11")
    await submitted(client)
    await submitted(client, gpu_id=GPUS[0])
    if not paused_first:
        await told(client, "/api/tag/pause", tag="mar11")
    assert await leased(client) == []
    assert await audited(client) == []

    await told(client, "/api/tag/unpause", tag="mar11")

    assert await leased(client) == ["mar11-1"]
    assert await audited(client) == []
    await told(client, "/api/tag/pause", tag="mar11")
    await ended(client, process, "mar11-1", 1.0)
    assert await leased(client) == []
    assert await audited(client) == []
    await told(client, "/api/tag/unpause", tag="mar11")
    assert await leased(client) == ["mar11-2"]
    assert await audited(client) == []


async def test_an_agent_that_trains_itself_is_never_held_up(client: httpx.AsyncClient) -> None:
    await opened(client)

    verdict = await tried(client, 1.0)
    after = await submitted(client)

    assert verdict["status"] == "keep"
    assert after["experiment_id"] == "mar11-2"
    assert await leased(client) == ["mar11-2"]


async def test_a_registered_experiment_that_is_to_be_trained_waits_for_the_baseline_too(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    name = await registered(client)

    accepted = await told(client, "/api/gpu/train", experiment_id=name)

    assert "waits for its baseline mar11-2" in accepted["next"]
    assert await leased(client) == ["mar11-2"]
    await ended(client, process, "mar11-2", 1.0)
    assert await leased(client) == [name]


async def test_without_the_policy_the_first_submit_runs_first(client: httpx.AsyncClient) -> None:
    await opened(client, baseline_first=False)

    assert (await submitted(client))["experiment_id"] == "mar11-1"
    assert await leased(client) == ["mar11-1"]
    answer = await told(client, "/api/experiment/baseline", tag="mar11")
    assert answer == {"baseline_id": None, "submitted": False}


async def test_a_baseline_is_submitted_once_however_often_it_is_asked_for(client: httpx.AsyncClient) -> None:
    await opened(client)

    first = await told(client, "/api/experiment/baseline", tag="mar11")
    again = await told(client, "/api/experiment/baseline", tag="mar11")

    assert first == {"baseline_id": "mar11-1", "submitted": True}
    assert again == {"baseline_id": "mar11-1", "submitted": False}


async def test_a_root_has_to_beat_what_the_base_commit_measured(
    client: httpx.AsyncClient, process: Process
) -> None:
    traces = {"mode": "multi", "target_traces": 3, "max_parallel": 9}
    await opened(client, traces=traces)
    await told(client, "/api/experiment/baseline", tag="mar11")
    await leased(client)
    await ended(client, process, "mar11-1", 1.0)

    statuses = []
    for value in (1.5, 1.4, 0.9):
        chosen = await told(client, "/api/trace/select", tag="mar11", intent="new_root")
        statuses.append((await ran(client, process, value, selection_id=chosen["selection_id"]))["status"])

    assert statuses == ["discard", "discard", "keep"]
    stats = (await told(client, "/api/report/summary", tag="mar11"))["stats"]
    assert stats["keep_rate"] == pytest.approx(1 / 3)
    assert await audited(client) == []
    assert (await told(client, "/api/trace/audit", tag="mar11"))["violations"] == []


async def test_a_self_trained_base_commit_is_what_roots_have_to_beat(client: httpx.AsyncClient) -> None:
    await opened(client, traces={"mode": "multi", "target_traces": 3, "max_parallel": 9})
    await tried(client, 1.0, commit_sha=BASE)

    chosen = await told(client, "/api/trace/select", tag="mar11", intent="new_root")
    root = await tried(client, 1.5, selection_id=chosen["selection_id"])

    assert (root["status"], root["branch_improved"]) == ("discard", False)


async def test_a_baseline_on_a_gpu_that_dies_is_run_again_before_the_others(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await submitted(client)
    await leased(client)
    await begun(process, "mar11-1")
    await silence(process.lab, GPUS[0])
    await told(client, "/api/pool/sweep")
    await add_gpu(client, GPUS[1])

    assert await leased(client) == ["mar11-1"]
    assert (await found(process, "mar11-1")).attempt == 2
    assert await audited(client) == []


@pytest.mark.parametrize("order", [("mar11-1", "mar11-1.2"), ("mar11-1.2", "mar11-1")])
async def test_the_best_stays_what_the_baseline_measured_first_whichever_run_ends_first(
    client: httpx.AsyncClient, process: Process, order: tuple[str, str]
) -> None:
    await opened(client, gpus=2, baseline_repeats=1)
    await submitted(client)
    assert await leased(client) == ["mar11-1", "mar11-1.2"]
    values = {"mar11-1": 1.0, "mar11-1.2": 1.1}

    for name in order:
        await ended(client, process, name, values[name])

    best = (await told(client, "/api/experiment/best", tag="mar11"))["best"]
    assert (best["experiment_id"], best["val_bpb"]) == ("mar11-1", 1.0)
    assert await audited(client) == []


@pytest.mark.parametrize(("reported", "measured"), [(0.9, 1.0), (1.0, 0.9995)])
async def test_a_baseline_beside_an_agent_s_own_number_is_the_best_and_never_on_trial(
    client: httpx.AsyncClient, process: Process, reported: float, measured: float
) -> None:
    await opened(client, keep_rule="confirmed")
    await submitted(client)
    await leased(client)
    await tried(client, reported)

    answer = await ended(client, process, "mar11-1", measured)

    assert (answer["status"], answer["retest"]) == ("keep", None)
    assert (answer["improved"], answer["action"], answer["trust"]) == (True, "keep_commit", "first")
    assert await audited(client) == []


async def test_what_an_agent_says_of_the_base_commit_does_not_move_what_roots_have_to_beat(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client, traces={"mode": "multi", "target_traces": 3, "max_parallel": 9})
    await told(client, "/api/experiment/baseline", tag="mar11")
    await leased(client)
    await tried(client, 9.0, commit_sha=BASE)
    await ended(client, process, "mar11-1", 1.0)

    chosen = await told(client, "/api/trace/select", tag="mar11", intent="new_root")

    assert (await tried(client, 1.5, selection_id=chosen["selection_id"]))["status"] == "discard"


async def test_no_pinned_run_becomes_the_baseline(client: httpx.AsyncClient, process: Process) -> None:
    await opened(client)

    ours = await submitted(client, commit_sha=BASE, gpu_id=GPUS[0])

    assert ours["experiment_id"] == "mar11-2"
    baseline = await found(process, "mar11-1")
    assert (baseline.baseline, baseline.pinned_gpu, baseline.priority) == (True, None, 7)


async def test_the_base_commit_as_the_baseline_holds_the_others_up_no_longer_than_it_has_to(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)

    await submitted(client, commit_sha=BASE, priority=0, timeout_s=86400)

    baseline = await found(process, "mar11-1")
    assert (baseline.baseline, baseline.priority, baseline.timeout_s) == (True, 7, 660.0)


async def test_a_tag_whose_queue_is_broken_holds_up_no_other_tag(
    client: httpx.AsyncClient, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    await opened(client)
    await submitted(client)
    await leased(client)
    await ended(client, process, "mar11-1", 1.0)
    await process.lab.command("DEL", process.lab.keys.parked("mar11"))
    await open_tag(client, "other")

    await told(client, "/api/experiment/submit", **idea("other"))

    assert await leased(client) == ["other-1"]
    assert "does not stand still" in caplog.text


async def test_a_baseline_that_is_taken_back_counts_for_nothing_any_more(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client, traces={"mode": "multi", "target_traces": 3, "max_parallel": 9})
    await told(client, "/api/experiment/baseline", tag="mar11")
    await leased(client)
    await ended(client, process, "mar11-1", 1.0)
    await ran(client, process, 1.2)

    await told(client, "/api/experiment/retract", experiment_id="mar11-1", reason="the wrong data")

    stats = (await told(client, "/api/report/summary", tag="mar11"))["stats"]
    assert (stats["total"], stats["retracted"]) == (1, 1)
    chosen = await told(client, "/api/trace/select", tag="mar11", intent="new_root")
    assert (await ran(client, process, 1.1, selection_id=chosen["selection_id"]))["status"] == "keep"
    assert await audited(client) == []


async def test_without_a_worker_the_hint_that_starts_one_stands_beside_the_baseline(
    client: httpx.AsyncClient,
) -> None:
    await opened(client, gpus=0)

    step = (await submitted(client))["next"]

    assert "waits for its baseline mar11-1" in step
    assert "no worker is there: start one with ./nightjar worker --repo PATH" in step


async def test_who_asks_what_to_do_is_told_that_the_lab_runs_the_baseline(
    client: httpx.AsyncClient, process: Process
) -> None:
    opened_tag = await open_tag(client, base_commit=BASE)
    await add_gpu(client, GPUS[0])
    said = [(await told(client, "/api/report/brief", tag="mar11"))["next"]]
    before = await told(client, "/api/search/suggest", tag="mar11")
    await submitted(client)
    waits = await told(client, "/api/search/suggest", tag="mar11")
    await leased(client)
    await begun(process, "mar11-1")
    runs = await told(client, "/api/search/suggest", tag="mar11")
    said.append((await told(client, "/api/report/brief", tag="mar11", agent="bob"))["next"])
    who = {"experiment_id": "mar11-1", "attempt": 1, "fence": (await found(process, "mar11-1")).fence}
    await told(client, "/api/experiment/complete", **who, val_bpb=1.0)
    after = await told(client, "/api/search/suggest", tag="mar11")

    assert opened_tag["next"] == said[0]
    assert "the lab runs the unchanged train.py, the baseline, before what you submit first" in said[0]
    assert "The lab runs the unchanged train.py before it" in before["next"]
    assert "The lab runs the baseline first" in before["suggestions"][0]
    assert "prepare one change in" in before["suggestions"][0]
    for suggestion in (waits, runs):
        assert "The lab runs the baseline mar11-1 first" in suggestion["suggestions"][0]
        assert "waits for its baseline mar11-1" in suggestion["hint"]
    assert all("commit one change to it" in asked["next"] for asked in (before, waits, runs, after))
    assert "waits for its baseline mar11-1" in said[1]
    assert "unchanged train.py comes first" not in said[1]
    assert "baseline" not in after["next"]
    assert after["suggestions"][0].startswith("Try one change in")
