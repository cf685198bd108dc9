"""Runs that train for longer than their budget: discarded, and compared with nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from functions.process.lifecycle import Process
from functions.rules.keeps.judging import Report, conditions_of, judge_run
from functions.rules.keeps.overruns import ALL_OVER, HINT
from functions.rules.keeps.verdict import Key
from functions.views.hints import HUNG
from state.experiments import Experiments
from state.records import Experiment, ReferenceTime, TimeSpent
from tests.functions.test_swarm import DIMENSIONS, Swarm
from tests.labs import add_gpu, asked, begun, events_of, idea, open_tag, refused, registered, told
from triggers.cli.finished import line

BASE = "a" * 40
SHORT, LONG = {"wall_seconds": 300.0, "cpu_seconds": 290.0}, {"wall_seconds": 600.0, "cpu_seconds": 590.0}


async def opened(http: httpx.AsyncClient, *, gpu: str = "H100", policy: Mapping[str, Any] = {}) -> None:
    await open_tag(http, base_commit=BASE, policy={"baseline_first": False, **policy})
    await add_gpu(http, gpu_name=gpu)


async def leased(http: httpx.AsyncClient, process: Process, **changes: Any) -> Experiment:
    """A run that a worker trains."""
    submitted = await told(http, "/api/experiment/submit", **idea(**changes))
    await told(http, "/api/pool/dispatch")
    return await begun(process, submitted["experiment_id"])


async def leased_for(http: httpx.AsyncClient, process: Process, budget_s: float) -> Experiment:
    """The same with a budget of its own."""
    name = await registered(http)
    await told(http, "/api/gpu/train", experiment_id=name, budget_s=budget_s)
    await told(http, "/api/pool/dispatch")
    return await begun(process, name)


async def ended(
    http: httpx.AsyncClient, e: Experiment, value: float, time: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """The verdict on a run whose worker has measured this."""
    lease = {"experiment_id": e.experiment_id, "attempt": e.attempt, "fence": e.fence}
    verdict = await told(http, "/api/experiment/complete", **lease, val_bpb=value, **time, **more)
    await told(http, "/api/pool/release", gpu_id=e.gpu_id, experiment_id=e.experiment_id, proven=True)
    return verdict


async def run(
    http: httpx.AsyncClient, process: Process, value: float, time: dict[str, Any], **changes: Any
) -> dict[str, Any]:
    return await ended(http, await leased(http, process, **changes), value, time)


async def audited(http: httpx.AsyncClient) -> list[str]:
    return list((await told(http, "/api/lab/audit"))["violations"])


async def test_a_run_over_its_budget_is_discarded_with_a_hint_and_is_not_the_best(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    first = await run(client, process, 1.0, SHORT)

    over = await run(client, process, 0.5, LONG)

    assert (first["status"], first["over_budget"], first["hint"]) == ("keep", False, None)
    assert (over["status"], over["over_budget"], over["hint"]) == ("discard", True, HINT)
    assert (over["improved"], over["delta"], over["near_miss"]) == (False, 0.0, False)
    assert "it trained 600.0 s where mar11-1, the first run on its class" in over["reason"]
    assert (
        over["base_commit_sha"]
        == (await asked(client, "/api/experiment/mar11-1"))["experiment"]["commit_sha"]
    )
    best = (await told(client, "/api/experiment/best", tag="mar11"))["best"]
    assert (best["experiment_id"], best["val_bpb"]) == ("mar11-1", 1.0)
    shown = (await asked(client, "/api/experiment/mar11-2"))["experiment"]
    assert (shown["val_bpb"], shown["over_budget"]) == (0.5, True)
    assert (shown["wall_seconds"], shown["cpu_seconds"]) == (600.0, 590.0)
    assert "discard (over budget)" in line(await Experiments(process.lab).shown("mar11-2"))
    waited = await asked(client, "/api/experiment/mar11-2/wait")
    assert waited["over_budget"]
    assert HINT in waited["next"]
    assert (await events_of(process, "experiment.finished"))[-1]["over_budget"]
    assert await audited(client) == []


async def test_a_run_that_hung_after_its_result_is_kept_like_any_other_and_says_so(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await run(client, process, 1.0, SHORT)
    hung = await leased(client, process)

    verdict = await ended(client, hung, 0.9, SHORT, hung=True)

    assert (verdict["status"], verdict["over_budget"]) == ("keep", False)
    shown = (await asked(client, "/api/experiment/mar11-2"))["experiment"]
    assert (shown["val_bpb"], shown["hung"], shown["wall_seconds"]) == (0.9, True, 300.0)
    assert "provisional (hung)" in line(await Experiments(process.lab).shown("mar11-2"))
    waited = await asked(client, "/api/experiment/mar11-2/wait")
    assert waited["hung"]
    assert waited["next"].endswith(HUNG)
    assert [e.get("hung") for e in await events_of(process, "experiment.finished")] == [None, True]
    assert await audited(client) == []


async def test_a_run_over_its_budget_is_no_near_miss_and_no_noise_and_nothing_rises_from_it(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await run(client, process, 1.0, SHORT)
    over = await leased(client, process)
    await ended(client, over, 1.001, LONG)

    near = (await told(client, "/api/experiment/near-misses", tag="mar11"))["near_misses"]
    again = await run(client, process, 1.5, SHORT, commit_sha=over.commit_sha)
    await told(client, "/api/experiment/retract", experiment_id="mar11-1", reason="it was wrong")

    assert near == []
    assert again["judged_val_bpb"] is None  # it is the first run of its code that counts
    best = (await told(client, "/api/experiment/best", tag="mar11"))["best"]
    assert best["experiment_id"] == "mar11-3"
    assert await audited(client) == []


async def test_the_next_measured_run_is_compared_with_once_the_first_was_taken_back(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await run(client, process, 1.0, LONG)
    assert not (await run(client, process, 0.9, LONG))["over_budget"]

    await told(client, "/api/experiment/retract", experiment_id="mar11-1", reason="it took too long")
    short = await run(client, process, 0.8, SHORT)
    long = await run(client, process, 0.7, LONG)

    assert (short["over_budget"], long["over_budget"]) == (False, True)


async def test_of_two_first_runs_that_end_at_once_one_is_compared_with_the_other(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await add_gpu(client, gpu_id="host:gpu1")
    runs = [await leased(client, process) for _ in range(2)]

    short, long = await asyncio.gather(ended(client, runs[0], 1.0, SHORT), ended(client, runs[1], 0.5, LONG))

    [text] = (await process.lab.hash(process.lab.keys("reference_times", "mar11"))).values()
    first = ReferenceTime.model_validate_json(text).experiment_id
    assert short["over_budget"] is False
    assert long["over_budget"] == (first == "mar11-1")


async def test_the_baseline_s_time_is_what_counts_where_there_is_one(
    client: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client, base_commit=BASE)
    await add_gpu(client)
    await told(client, "/api/experiment/submit", **idea())  # the lab puts its baseline before it
    await told(client, "/api/pool/dispatch")
    await ended(client, await begun(process, "mar11-1"), 1.0, SHORT)
    await told(client, "/api/pool/dispatch")

    over = await ended(client, await begun(process, "mar11-2"), 0.5, LONG)

    assert over["over_budget"]
    assert "mar11-1, the baseline, trained 300.0 s" in over["reason"]


async def test_runs_of_another_budget_or_class_of_gpu_are_compared_with_their_own_first(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client, policy={"budgets.max_timeout_s": 5000})
    await run(client, process, 1.0, SHORT)

    another_budget = await ended(client, await leased_for(client, process, 600), 0.9, LONG)
    longer = {"wall_seconds": 1200.0}
    over_that = await ended(client, await leased_for(client, process, 600), 0.8, longer)
    await told(client, "/api/pool/deregister", gpu_id="host:gpu0")
    await add_gpu(client, gpu_id="host:gpu1", gpu_name="A100")
    another_class = await run(client, process, 0.9, LONG)

    over = [each["over_budget"] for each in (another_budget, over_that, another_class)]
    assert over == [False, True, False]


async def test_the_policy_says_how_many_times_the_time_a_run_may_take(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client, policy={"budgets.overrun": 2.5})
    await run(client, process, 1.0, SHORT)
    assert not (await run(client, process, 0.9, LONG))["over_budget"]

    await told(client, "/api/search/set-policy", tag="mar11", policy={"budgets.overrun": 1.9})

    assert (await run(client, process, 0.8, LONG))["over_budget"]
    await refused(client, 422, "/api/search/set-policy", tag="mar11", policy={"budgets.overrun": 0.5})


async def test_on_a_busy_machine_a_cpu_slot_makes_no_run_guilty(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client, gpu="cpu")
    await run(client, process, 1.0, SHORT)

    slowed = await run(client, process, 0.9, {"wall_seconds": 600.0, "cpu_seconds": 300.0})
    over = await run(client, process, 0.8, LONG)

    assert (slowed["status"], slowed["over_budget"], over["over_budget"]) == ("keep", False, True)


async def test_a_worker_that_does_not_measure_its_time_is_never_over_its_budget(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await run(client, process, 1.0, SHORT)
    slow, lab = await leased(client, process), process.lab
    began = f"{await lab.now() - 6000:.6f}"
    await lab.command("HSET", lab.keys.experiment(slow.experiment_id), "started_at", began)

    late = await ended(client, slow, 0.5, {})  # checkout, scoring and an outage may have taken that long

    assert (late["status"], late["over_budget"]) == ("keep", False)


async def test_a_short_first_run_makes_no_honest_run_guilty(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await run(client, process, 1.0, {"wall_seconds": 6.0})

    honest = await run(client, process, 0.9, SHORT)
    over = await run(client, process, 0.5, LONG)

    assert (honest["status"], honest["over_budget"], over["over_budget"]) == ("keep", False, True)


async def with_baseline(http: httpx.AsyncClient, process: Process) -> None:
    await open_tag(http, base_commit=BASE, policy={"budgets.max_timeout_s": 5000})
    await add_gpu(http)
    await told(http, "/api/experiment/submit", **idea())
    await told(http, "/api/pool/dispatch")
    await ended(http, await begun(process, "mar11-1"), 1.0, SHORT)
    await told(http, "/api/pool/dispatch")
    await ended(http, await begun(process, "mar11-2"), 0.9, SHORT)


async def test_a_budget_of_its_own_is_no_way_around_the_baseline_s_time(
    client: httpx.AsyncClient, process: Process
) -> None:
    await with_baseline(client, process)

    over = await ended(client, await leased_for(client, process, 300.001), 0.5, {"wall_seconds": 640.0})
    fair = await ended(client, await leased_for(client, process, 600.0), 0.4, {"wall_seconds": 640.0})

    assert (over["status"], over["over_budget"]) == ("discard", True)
    assert (fair["status"], fair["over_budget"]) == ("keep", False)
    assert await audited(client) == []


@pytest.mark.parametrize("nth", [0, 1])
async def test_a_verdict_counts_only_while_both_times_stay_what_it_was_made_by(
    client: httpx.AsyncClient, process: Process, nth: int
) -> None:
    await opened(client)
    e, store, lab = await leased(client, process), Experiments(process.lab), process.lab
    facts = await store.run_facts(e.experiment_id, e.attempt)
    report = Report(0.5, Key(), "", time=TimeSpent(wall_seconds=640.0))
    under = conditions_of(report.key, facts)
    beside = await store.comparison(facts, under.key.gpu_class, under.other_key, under.code, report.value)
    time_class = facts.experiment.time_classes[nth]
    found = ReferenceTime(experiment_id="mar11-9", baseline=nth == 0, budget_s=300.0, wall_seconds=300.0)
    await lab.command("HSET", lab.keys("reference_times", "mar11"), time_class, found.model_dump_json())

    assert not await store.end(judge_run(report, facts, under, beside))

    verdict = await ended(client, e, 0.5, {"wall_seconds": 640.0})
    assert (verdict["status"], verdict["over_budget"]) == ("discard", True)


async def test_a_run_with_a_budget_of_its_own_is_not_the_tag_s_best(
    client: httpx.AsyncClient, process: Process
) -> None:
    await with_baseline(client, process)

    longer = await ended(client, await leased_for(client, process, 600.0), 0.4, {"wall_seconds": 601.0})

    best = (await told(client, "/api/experiment/best", tag="mar11"))["best"]
    assert (best["experiment_id"], best["val_bpb"]) == ("mar11-2", 0.9)
    assert "another budget (600.0) than the tag's best" in longer["reason"]
    assert await audited(client) == []


async def test_runs_of_every_budget_forget_the_time_of_a_baseline_that_was_taken_back(
    client: httpx.AsyncClient, process: Process
) -> None:
    await with_baseline(client, process)
    await told(client, "/api/experiment/retract", experiment_id="mar11-1", reason="its machine was too fast")

    longer = await ended(client, await leased_for(client, process, 300.001), 0.5, {"wall_seconds": 640.0})

    assert longer["over_budget"] is False
    assert await audited(client) == []


async def test_what_an_agent_says_of_its_own_run_s_time_counts_for_nothing(
    client: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client)
    for value, time in ((1.0, SHORT), (0.5, LONG)):
        name = (await told(client, "/api/experiment/register", **idea()))["experiment_id"]
        verdict = await told(client, "/api/experiment/complete", experiment_id=name, val_bpb=value, **time)
        assert (verdict["status"], verdict["over_budget"]) == ("keep", False)


async def test_retests_over_their_budget_confirm_nothing_and_the_keep_falls(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client, policy={"keep_rule": "confirmed", "baseline_repeats": 0})
    await run(client, process, 1.0, SHORT)
    kept = await run(client, process, 0.9, SHORT)
    assert kept["trust"] == "provisional"

    seen: list[str] = []
    for _ in range(12):
        await told(client, "/api/experiment/judge-retests", tag="mar11")
        if not (await told(client, "/api/pool/dispatch"))["leased"]:
            break
        [running] = [e for e in await of_status(process, "leased") if e.retest_of]
        time = LONG if running.retest_of == "mar11-2" else SHORT
        verdict = await ended(client, await begun(process, running.experiment_id), 0.9, time)
        seen.append(f"{running.retest_of} {verdict['status']} {verdict['over_budget']}")

    e = (await asked(client, "/api/experiment/mar11-2"))["experiment"]
    assert seen.count("mar11-2 invalid True") == 3
    assert (e["status"], e["trust"], e["reason"]) == ("discard", "demoted", ALL_OVER)
    best = (await told(client, "/api/experiment/best", tag="mar11"))["best"]
    assert best["experiment_id"] == "mar11-1"


async def of_status(process: Process, status: str) -> list[Experiment]:
    lab = process.lab
    ids = await lab.command("ZRANGE", lab.keys.status("mar11", status, "")[0], 0, -1)
    return await Experiments(lab).many(ids)


# -- in a swarm


@pytest.fixture
async def swarm(client: httpx.AsyncClient, process: Process) -> Swarm:
    await told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    found = Swarm(client, process)
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


async def test_a_worker_that_says_one_second_makes_no_other_guilty(swarm: Swarm) -> None:
    await of_swarm(swarm, "w1", 0.9, 1.0)

    honest = await of_swarm(swarm, "w2", 0.8, 300.0)

    assert (honest.status, honest.over_budget) == ("keep", False)


async def test_an_honest_worker_without_a_network_is_not_over_its_budget(swarm: Swarm) -> None:
    await of_swarm(swarm, "w1", 0.9, 300.0)

    late = await of_swarm(swarm, "w2", 0.8, 310.0)  # handed out an hour ago

    assert (late.status, late.over_budget) == ("keep", False)


async def test_a_swarm_s_worker_trains_no_longer_than_since_its_run_was_handed_out(swarm: Swarm) -> None:
    await of_swarm(swarm, "w1", 0.9, 10.0)
    run_id = (await swarm.next("w2"))["run_id"]

    await swarm.result("w2", run_id, 0.8, duration_seconds=300_000.0)  # its unit is wrong

    assert not (await swarm.record(run_id)).over_budget
