"""Runs that train for longer than their budget: discarded, and compared with nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from functions.experiments.views.hints import HUNG
from functions.trust.rules.overruns import ALL_OVER, HINT
from state.records import Experiment
from tests.functions.conftest import TagUnderTest
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm
from tests.labs import add_gpu, asked, begun, idea, open_tag, registered, told
from triggers.cli.up import line

BASE = "a" * 40
SHORT, LONG = {"wall_seconds": 300.0, "cpu_seconds": 290.0}, {"wall_seconds": 600.0, "cpu_seconds": 590.0}


async def opened(tag: TagUnderTest, *, gpu: str = "H100", policy: Mapping[str, Any] = {}) -> None:
    await open_tag(tag.client, base_commit=BASE, policy={"baseline_first": False, **policy})
    await add_gpu(tag.client, gpu_name=gpu)


async def run(tag: TagUnderTest, value: float, time: dict[str, float], **changes: Any) -> dict[str, Any]:
    """The verdict on a new run whose worker has measured this."""
    return await tag.ended(await tag.begun(await tag.submit(**changes)), value, **time)


async def run_for(tag: TagUnderTest, budget_s: float, value: float, wall_seconds: float) -> dict[str, Any]:
    """The same with a budget of its own."""
    name = await registered(tag.client)
    await tag.told("/api/gpu/train", experiment_id=name, budget_s=budget_s)
    return await tag.ended(await tag.begun(name), value, wall_seconds=wall_seconds)


async def test_a_run_over_its_budget_is_discarded_with_a_hint_and_is_not_the_best(tag: TagUnderTest) -> None:
    await opened(tag)
    first = await run(tag, 1.0, SHORT)

    over = await run(tag, 0.5, LONG)

    assert (first["status"], first["over_budget"], first["hint"]) == ("keep", False, None)
    assert (over["status"], over["over_budget"], over["hint"]) == ("discard", True, HINT)
    assert (over["improved"], over["delta"], over["near_miss"]) == (False, 0.0, False)
    assert "it trained 600.0 s where mar11-1, the first run on its class" in over["reason"]
    assert over["base_commit_sha"] == (await tag.experiment("mar11-1"))["commit_sha"]
    best = await tag.best()
    assert (best["experiment_id"], best["val_bpb"]) == ("mar11-1", 1.0)
    shown = await tag.experiment("mar11-2")
    assert (shown["val_bpb"], shown["over_budget"]) == (0.5, True)
    assert (shown["wall_seconds"], shown["cpu_seconds"]) == (600.0, 590.0)
    assert "discard (over budget)" in line(await tag.experiments.shown("mar11-2"))
    waited = await tag.asked("/api/experiment/mar11-2/wait")
    assert waited["over_budget"]
    assert HINT in waited["next"]
    assert (await tag.events("experiment.finished"))[-1]["over_budget"]


async def test_a_run_that_hung_after_its_result_is_kept_like_any_other_and_says_so(tag: TagUnderTest) -> None:
    await opened(tag)
    await run(tag, 1.0, SHORT)
    hung = await tag.begun(await tag.submit())

    verdict = await tag.ended(hung, 0.9, hung=True, **SHORT)

    assert (verdict["status"], verdict["over_budget"]) == ("keep", False)
    shown = await tag.experiment("mar11-2")
    assert (shown["val_bpb"], shown["hung"], shown["wall_seconds"]) == (0.9, True, 300.0)
    assert "provisional, hung " in line(await tag.experiments.shown("mar11-2"))
    night = await tag.told("/api/report/night", tag="mar11")
    assert "| provisional, hung |" in night["markdown"]
    assert [step["hung"] for step in night["chain"]] == [False, True]
    waited = await tag.asked("/api/experiment/mar11-2/wait")
    assert waited["hung"]
    assert waited["next"].endswith(HUNG)
    assert [e.get("hung") for e in await tag.events("experiment.finished")] == [None, True]


async def test_a_run_over_its_budget_is_no_near_miss_and_no_noise(tag: TagUnderTest) -> None:
    await opened(tag)
    await run(tag, 1.0, SHORT)
    await run(tag, 1.001, LONG, commit_sha="bbbbbbb")

    near = (await tag.told("/api/experiment/near-misses", tag="mar11"))["near_misses"]
    again = await run(tag, 1.5, SHORT, commit_sha="bbbbbbb")
    await tag.told("/api/experiment/retract", experiment_id="mar11-1", reason="it was wrong")

    assert near == []
    assert again["judged_val_bpb"] is None  # it is the first run of its code that counts
    best = await tag.best()
    assert best["experiment_id"] == "mar11-3"


async def test_the_next_measured_run_is_compared_with_once_the_first_was_taken_back(
    tag: TagUnderTest,
) -> None:
    await opened(tag)
    await run(tag, 1.0, LONG)
    await tag.told("/api/experiment/retract", experiment_id="mar11-1", reason="it took too long")
    short, long = await run(tag, 0.8, SHORT), await run(tag, 0.7, LONG)
    assert (short["over_budget"], long["over_budget"]) == (False, True)


async def test_another_budget_or_class_of_gpu_is_compared_with_its_own_first_run(tag: TagUnderTest) -> None:
    await opened(tag, policy={"budgets.max_timeout_s": 5000})
    await run(tag, 1.0, SHORT)

    another_budget = await run_for(tag, 600, 0.9, 600.0)
    over_that = await run_for(tag, 600, 0.8, 1200.0)
    await tag.told("/api/pool/deregister", gpu_id="host:gpu0")
    await add_gpu(tag.client, gpu_id="host:gpu1", gpu_name="A100")
    another_class = await run(tag, 0.9, LONG)

    over = [each["over_budget"] for each in (another_budget, over_that, another_class)]
    assert over == [False, True, False]


async def test_retests_over_their_budget_confirm_nothing_and_the_keep_falls(tag: TagUnderTest) -> None:
    await opened(tag, policy={"keep_rule": "confirmed", "baseline_repeats": 0})
    await run(tag, 1.0, SHORT)
    kept = await run(tag, 0.9, SHORT)
    assert kept["trust"] == "provisional"

    seen: list[str] = []
    for _ in range(12):
        await tag.told("/api/experiment/judge-retests", tag="mar11")
        if not (await tag.told("/api/pool/dispatch"))["leased"]:
            break
        [running] = [e for e in await tag.experiments.by_number("mar11", "leased", 9) if e.retest_of]
        time = LONG if running.retest_of == "mar11-2" else SHORT
        verdict = await tag.ended(await begun(tag.process, running.experiment_id), 0.9, **time)
        seen.append(f"{running.retest_of} {verdict['status']} {verdict['over_budget']}")

    e = await tag.experiment("mar11-2")
    assert seen.count("mar11-2 invalid True") == 3
    assert (e["status"], e["trust"], e["reason"]) == ("discard", "demoted", ALL_OVER)
    best = await tag.best()
    assert best["experiment_id"] == "mar11-1"


# -- in a swarm


@pytest.fixture
async def swarm(tag: TagUnderTest) -> Swarm:
    await tag.told("/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    found = Swarm(tag.client, tag.process)
    for name in ("w1", "w2"):
        await found.join(name)
    return found


async def of_swarm(swarm: Swarm, worker: str, value: float, seconds: float, **more: Any) -> Experiment:
    """A run that its worker was handed out an hour ago."""
    run_id, lab = (await swarm.next(worker))["run_id"], swarm.process.lab
    began = f"{await lab.now() - 3600:.6f}"
    await lab.command("HSET", lab.keys.experiment(run_id), "started_at", began)
    await swarm.result(worker, run_id, value, duration_seconds=seconds, **more)
    return await swarm.record(run_id)


async def test_a_swarm_s_run_over_its_budget_leads_nobody_and_is_no_evidence(swarm: Swarm) -> None:
    first = await of_swarm(swarm, "w1", 0.9, 300.0)

    over = await of_swarm(swarm, "w2", 0.5, 600.0)

    assert (first.status, first.over_budget) == ("keep", False)
    assert (over.status, over.over_budget, over.delta_bpb, over.val_bpb) == ("discard", True, None, 0.5)
    leaders = await asked(swarm.http, "/leaderboard")
    assert [row["worker_id"] for row in leaders] == ["w1"]  # type: ignore[index]  # a bare array
    best = (await told(swarm.http, "/api/experiment/best", tag="swarm"))["best"]
    assert best["experiment_id"] == first.experiment_id
    assert await swarm.audited() == []
    run_id = (await swarm.next("w2"))["run_id"]
    await swarm.result("w2", run_id, 0.8, duration_seconds=300_000.0)  # more than since it was handed out
    assert not (await swarm.record(run_id)).over_budget


async def test_what_an_agent_says_of_its_own_run_s_time_counts_for_nothing(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    for value, time in ((1.0, SHORT), (0.5, LONG)):
        name = (await tag.told("/api/experiment/register", **idea()))["experiment_id"]
        verdict = await tag.told("/api/experiment/complete", experiment_id=name, val_bpb=value, **time)
        assert (verdict["status"], verdict["over_budget"]) == ("keep", False)
