"""The baseline first: the base commit's own code runs before anything else that the lab trains."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from state.pool import Pool
from state.records import Experiment
from tests.functions.conftest import TagUnderTest
from tests.labs import add_gpu, begun, idea, open_tag, registered, waiting

BASE = "abc1234abc1234abc1234abc1234abc1234abc12"
GPUS = ("host:gpu0", "host:gpu1", "host:gpu2", "host:gpu3")


async def opened(tag: TagUnderTest, *, gpus: int = 1, **policy: Any) -> None:
    await open_tag(tag.client, base_commit=BASE, policy=policy)
    for gpu in GPUS[:gpus]:
        await add_gpu(tag.client, gpu)


async def submitted(tag: TagUnderTest, **changes: Any) -> dict[str, Any]:
    return await tag.told("/api/experiment/submit", **idea(**changes))


async def ran(tag: TagUnderTest, value: float, **changes: Any) -> dict[str, Any]:
    """The verdict on a new experiment that a worker trained."""
    name = str((await submitted(tag, **changes))["experiment_id"])
    await tag.leased()
    return await ended(tag, name, value)


async def ended(tag: TagUnderTest, name: str, value: float) -> dict[str, Any]:
    """A worker runs this leased experiment and reports its value."""
    e = await begun(tag.process, name)
    who = {"experiment_id": name, "attempt": e.attempt, "fence": e.fence}
    measured = {"val_bpb": value, "gpu_class": "H100", "budget_seconds": 300}
    answer = await tag.told("/api/experiment/complete", **who, **measured)
    assert e.gpu_id is not None
    await Pool(tag.lab).release(e.gpu_id, name, e.fence, proven=True)
    return answer


async def found(tag: TagUnderTest, name: str) -> Experiment:
    return await tag.experiments.get(name)


async def queued(tag: TagUnderTest, gpu: str | None = None) -> list[str]:
    return [e.experiment_id for e in await waiting(tag.lab, gpu)]


async def test_the_first_submit_brings_the_baseline_which_alone_is_dispatched(tag: TagUnderTest) -> None:
    await opened(tag)

    ours = await submitted(tag)
    another = await submitted(tag, agent="bob")

    assert (ours["experiment_id"], another["experiment_id"]) == ("mar11-2", "mar11-3")
    assert "waits for its baseline mar11-1" in ours["next"]
    assert ours["hint"] is not None
    baseline = await tag.experiment("mar11-1")
    assert (baseline["baseline"], baseline["commit_sha"], baseline["status"]) == (True, BASE, "queued")
    assert await tag.leased() == ["mar11-1"]
    assert await tag.leased() == []
    assert await tag.faults() == []

    answer = await ended(tag, "mar11-1", 1.0)

    assert (answer["status"], answer["improved"], answer["action"]) == ("keep", True, "keep_commit")
    night = await tag.told("/api/report/night", tag="mar11")
    assert night["headline"].startswith("Nothing beat the baseline yet, 1 (one run). 0 ideas, 0 kept")
    assert await tag.leased() == ["mar11-2"]
    assert (await tag.asked("/api/experiment/mar11-3/wait?timeout=0"))["queue"]["position"] == 1
    assert [e["lifted"] for e in await tag.events("tag.resumed")] == ["baseline"]


async def test_the_base_commit_itself_becomes_the_baseline(tag: TagUnderTest) -> None:
    await opened(tag)

    first = await submitted(tag, commit_sha=BASE[:10], diff="", config_delta={"SEED": 3})
    await submitted(tag, commit_sha=BASE)

    assert first["experiment_id"] == "mar11-1"
    assert await queued(tag) == ["mar11-1"]
    assert (await found(tag, "mar11-1")).baseline
    assert not (await found(tag, "mar11-2")).baseline
    assert first["hint"] is None


async def test_ideas_let_in_wait_again_behind_the_next_baseline_each_in_its_place(tag: TagUnderTest) -> None:
    await opened(tag)
    for agent in ("ann", "bob"):
        await submitted(tag, agent=agent)
    await submitted(tag, agent="eve", gpu_id=GPUS[0])
    await tag.told("/api/experiment/stop", experiment_id="mar11-1")
    await add_gpu(tag.client, GPUS[0])
    await tag.told("/api/pool/drain", gpu_id=GPUS[0])
    assert await tag.leased() == []
    assert await queued(tag) == ["mar11-2", "mar11-3"]

    brief = await tag.told("/api/report/brief", tag="mar11", agent="new")
    later = await submitted(tag, agent="ann")

    assert "the lab runs the unchanged train.py" in brief["next"]
    assert (later["experiment_id"], (await found(tag, "mar11-5")).baseline) == ("mar11-6", True)
    assert (await tag.told("/api/experiment/baseline", tag="mar11"))["baseline_id"] == "mar11-5"
    assert await queued(tag) == ["mar11-5"]
    assert await tag.faults() == []
    await tag.told("/api/pool/drain", gpu_id=GPUS[0], undo=True)
    assert await tag.leased() == ["mar11-5"]
    await ended(tag, "mar11-5", 1.0)
    assert await tag.leased() == ["mar11-2"]
    assert await queued(tag) == ["mar11-3", "mar11-6"]
    assert await queued(tag, GPUS[0]) == ["mar11-4"]


async def test_a_registered_base_commit_becomes_the_baseline_of_what_waits(tag: TagUnderTest) -> None:
    await opened(tag, baseline_first=False)
    await submitted(tag)
    await tag.told("/api/search/set-policy", tag="mar11", policy={"baseline_first": True})
    base = await registered(tag.client, commit_sha=BASE)

    await tag.told("/api/gpu/train", experiment_id=base)

    assert await tag.faults() == []
    assert await tag.leased() == [base]
    await ended(tag, base, 1.0)
    assert await tag.leased() == ["mar11-1"]


async def test_a_registered_experiment_to_be_trained_waits_for_the_baseline_too(tag: TagUnderTest) -> None:
    await opened(tag)
    name = await registered(tag.client)

    accepted = await tag.told("/api/gpu/train", experiment_id=name)

    assert "waits for its baseline mar11-2" in accepted["next"]
    assert await tag.leased() == ["mar11-2"]
    await ended(tag, "mar11-2", 1.0)
    assert await tag.leased() == [name]


async def test_gpus_that_stand_idle_run_the_baseline_on_further_seeds(tag: TagUnderTest) -> None:
    await opened(tag, gpus=4, baseline_repeats=2)
    await tag.told("/api/tag/budget", tag="mar11", runs=10)
    await submitted(tag)

    assert await tag.leased() == ["mar11-1", "mar11-1.2", "mar11-1.3"]
    assert await tag.leased() == []
    for name, value in (("mar11-1.2", 1.001), ("mar11-1", 1.0), ("mar11-1.3", 0.999)):
        await ended(tag, name, value)

    summary = await tag.summary()
    assert (summary["noise"]["df"], summary["noise"]["sigma"]) == (2, pytest.approx(0.001))
    assert summary["budget"]["runs"]["spent"] == 3
    assert await tag.leased() == ["mar11-2"]
    assert (await ended(tag, "mar11-2", 0.9))["p_better"] > 0.99


async def test_many_first_submits_at_once_bring_one_baseline(tag: TagUnderTest) -> None:
    await opened(tag)

    answers = await asyncio.gather(*(submitted(tag, agent=f"a{n}") for n in range(16)))

    names = {answer["experiment_id"] for answer in answers}
    flagged = [e for e in await tag.experiments.many([f"mar11-{n}" for n in range(1, 18)]) if e.baseline]
    assert len(names) == 16
    assert [e.experiment_id for e in flagged] == ["mar11-1"]
    assert "mar11-1" not in names


async def test_a_pause_and_the_baseline_hold_back_each_for_itself(tag: TagUnderTest) -> None:
    await opened(tag)
    await submitted(tag)
    await submitted(tag, gpu_id=GPUS[0])
    await tag.told("/api/tag/pause", tag="mar11")
    assert await tag.leased() == []
    assert await tag.faults() == []

    await tag.told("/api/tag/unpause", tag="mar11")

    assert await tag.leased() == ["mar11-1"]
    assert await tag.faults() == []
    await tag.told("/api/tag/pause", tag="mar11")
    await ended(tag, "mar11-1", 1.0)
    assert await tag.leased() == []
    assert await tag.faults() == []
    await tag.told("/api/tag/unpause", tag="mar11")
    assert await tag.leased() == ["mar11-2"]


async def test_a_root_has_to_beat_what_the_base_commit_measured(tag: TagUnderTest) -> None:
    traces = {"mode": "multi", "target_traces": 3, "max_parallel": 9}
    await opened(tag, traces=traces)
    await tag.told("/api/experiment/baseline", tag="mar11")
    await tag.leased()
    await tag.tried(9.0, commit_sha=BASE)  # the bar of roots is what the lab measured
    await ended(tag, "mar11-1", 1.0)

    statuses = []
    for value in (1.5, 1.4, 0.9):
        chosen = await tag.told("/api/trace/select", tag="mar11", intent="new_root")
        statuses.append((await ran(tag, value, selection_id=chosen["selection_id"]))["status"])

    assert statuses == ["discard", "discard", "keep"]
    assert (await tag.summary())["stats"]["keep_rate"] == pytest.approx(1 / 3)
    assert (await tag.told("/api/trace/audit", tag="mar11"))["violations"] == []


async def test_a_tag_whose_queue_is_broken_holds_up_no_other_tag(
    tag: TagUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    tag.is_sound = False
    await opened(tag)
    await submitted(tag)
    await tag.leased()
    await ended(tag, "mar11-1", 1.0)
    await tag.lab.command("DEL", tag.lab.keys.parked("mar11"))
    await open_tag(tag.client, "other")

    await tag.told("/api/experiment/submit", **idea("other"))

    assert await tag.leased() == ["other-1"]
    assert "does not stand still" in caplog.text


async def test_who_asks_what_to_do_is_told_that_the_lab_runs_the_baseline(tag: TagUnderTest) -> None:
    opened_tag = await open_tag(tag.client, base_commit=BASE)
    await add_gpu(tag.client, GPUS[0])
    said = [(await tag.told("/api/report/brief", tag="mar11"))["next"]]
    before = await tag.told("/api/search/suggest", tag="mar11")
    await submitted(tag)
    waits = await tag.told("/api/search/suggest", tag="mar11")
    await tag.leased()
    said.append((await tag.told("/api/report/brief", tag="mar11", agent="bob"))["next"])
    await ended(tag, "mar11-1", 1.0)
    after = await tag.told("/api/search/suggest", tag="mar11")

    assert opened_tag["next"] == said[0]
    assert "the lab runs the unchanged train.py, the baseline, before what you submit first" in said[0]
    assert "The lab runs the unchanged train.py before it" in before["next"]
    assert "The lab runs the baseline first" in before["suggestions"][0]
    assert "prepare one change in" in before["suggestions"][0]
    assert "The lab runs the baseline mar11-1 first" in waits["suggestions"][0]
    assert "waits for its baseline mar11-1" in waits["hint"]
    assert all("commit one change to it" in asked["next"] for asked in (before, waits, after))
    assert "waits for its baseline mar11-1" in said[1]
    assert "unchanged train.py comes first" not in said[1]
    assert "baseline" not in after["next"]
    assert after["suggestions"][0].startswith("Try one change in")
