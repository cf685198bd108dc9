"""Runs that another program slowed down: flagged, run again, and judged by another attempt."""

from __future__ import annotations

from typing import Any

import pytest

from state.records import Experiment
from state.tags import Tags
from tests.functions.conftest import TagUnderTest
from tests.labs import add_gpu, open_tag

BASE = "a" * 40
GPUS = ("host:gpu0", "host:gpu1")
SPENT: dict[str, Any] = {"training_seconds": 300.0, "wall_seconds": 310.0}


@pytest.fixture
async def mine(tag: TagUnderTest) -> TagUnderTest:
    """A tag with two GPUs whose baseline made 1,000 steps."""
    await open_tag(tag.client, base_commit=BASE, policy={"baseline_repeats": 0})
    for gpu in GPUS:
        await add_gpu(tag.client, gpu, gpu_name="H100")
    await tag.submit()
    baseline = await tag.begun("mar11-1")
    assert (await ended(tag, baseline, 1.0, 1000))["status"] == "keep"
    await tag.told("/api/pool/dispatch")
    return tag


async def ended(tag: TagUnderTest, e: Experiment, value: float, steps: int) -> dict[str, Any]:
    """The answer to a worker's report; its GPU is free again."""
    return await tag.ended(e, value, num_steps=steps, **SPENT)


async def reported(tag: TagUnderTest, e: Experiment, value: float, steps: int) -> dict[str, Any]:
    return await tag.report(e, value, num_steps=steps, **SPENT)


async def test_a_disturbed_run_has_no_verdict_and_runs_again_on_another_slot(mine: TagUnderTest) -> None:
    disturbed = await mine.begun("mar11-2")

    answer = await ended(mine, disturbed, 1.2, 500)

    assert (answer["status"], answer["contended"], answer["improved"]) == ("queued", True, False)
    assert "500" not in answer["reason"]
    assert "1.667 steps a second, where mar11-1, the baseline, made 3.333" in answer["reason"]
    shown = await mine.asked("/api/experiment/mar11-2")
    assert (shown["experiment"]["status"], shown["experiment"]["contended"]) == ("queued", True)
    first = shown["attempts"]["1"]
    assert (first["status"], first["val_bpb"], first["gpu_id"]) == ("contended", "1.2", disturbed.gpu_id)
    [event] = await mine.events("experiment.contended")
    assert (event["attempt"], event["gpu_id"], event["val_bpb"]) == (1, disturbed.gpu_id, 1.2)
    again = await mine.begun("mar11-2")
    assert (again.attempt, {again.gpu_id, disturbed.gpu_id}) == (2, set(GPUS))

    verdict = await ended(mine, again, 0.9, 1000)

    assert (verdict["status"], verdict["contended"], verdict["val_bpb"]) == ("keep", True, 0.9)
    night = await mine.told("/api/report/night", tag="mar11")
    assert night["contended"] == 1
    assert "1 run was slowed down by another program" in night["markdown"]
    assert (await mine.events("experiment.finished"))[-1]["contended"]


async def test_a_repeated_report_gets_its_own_first_answer(mine: TagUnderTest) -> None:
    disturbed = await mine.begun("mar11-2")
    first = await reported(mine, disturbed, 1.2, 500)

    repeated = await reported(mine, disturbed, 1.2, 500)
    await mine.free(disturbed)
    again = await mine.begun("mar11-2")
    last = await reported(mine, again, 0.9, 1000)

    assert repeated == {**first, "replayed": True}
    assert await reported(mine, disturbed, 1.2, 500) == repeated
    assert await reported(mine, again, 0.9, 1000) == {**last, "replayed": True}
    assert len(await mine.events("experiment.contended")) == 1


async def test_a_slow_repeat_shows_that_the_code_is_slow(mine: TagUnderTest) -> None:
    await ended(mine, await mine.begun("mar11-2"), 0.95, 500)

    verdict = await ended(mine, await mine.begun("mar11-2"), 0.95, 510)

    assert (verdict["status"], verdict["contended"]) == ("keep", False)
    await mine.judge("mar11-2")
    retest = await ended(mine, await mine.begun("mar11-2.2"), 0.95, 505)
    assert retest["status"] == "measured"  # as slow as its first run
    slower = await mine.told("/api/experiment/retest", experiment_id="mar11-2")
    answer = await ended(mine, await mine.begun(slower["retest_id"]), 1.3, 250)
    assert (answer["status"], answer["contended"]) == ("queued", True)


async def test_a_run_that_was_told_to_stop_does_not_run_again(mine: TagUnderTest) -> None:
    e = await mine.begun("mar11-2")
    await mine.told("/api/experiment/stop", experiment_id="mar11-2")
    assert (await ended(mine, e, 1.2, 500))["status"] == "discard"


async def test_a_third_disturbed_attempt_is_judged(mine: TagUnderTest) -> None:
    seen = [
        (await ended(mine, await mine.begun("mar11-2"), 1.2, steps))["status"] for steps in (700, 500, 300)
    ]
    assert seen == ["queued", "queued", "discard"]


async def test_the_only_slot_runs_it_again(mine: TagUnderTest) -> None:
    e = await mine.begun("mar11-2")
    other = next(gpu for gpu in GPUS if gpu != e.gpu_id)
    await mine.told("/api/pool/drain", gpu_id=other)
    await ended(mine, e, 1.2, 500)
    assert (await mine.begun("mar11-2")).gpu_id == e.gpu_id


async def test_a_lost_attempt_after_a_disturbed_one_waits_again(mine: TagUnderTest) -> None:
    await ended(mine, await mine.begun("mar11-2"), 1.2, 500)
    again = await mine.begun("mar11-2")
    given = await mine.told("/api/pool/give-back", gpu_id=again.gpu_id, fence=again.fence, reason="gone")
    assert given["experiment_status"] == "queued"


async def test_a_branch_waits_for_the_attempt_that_counts(tag: TagUnderTest) -> None:
    await tag.branch(target=1, keep_rule="strict")
    for gpu in GPUS:
        await add_gpu(tag.client, gpu, gpu_name="H100")
    await tag.told(
        "/api/search/set-policy", tag="mar11", policy={"baseline_first": True, "baseline_repeats": 0}
    )
    await tag.told("/api/experiment/baseline", tag="mar11")
    await ended(tag, await tag.begun("mar11-1"), 1.0, 1000)
    selection = await tag.selected()
    name = await tag.submit(selection_id=selection["selection_id"])

    await ended(tag, await tag.begun(name), 1.2, 500)

    assert (await tag.traces())[selection["trace_id"]]["in_flight"] == 1
    await ended(tag, await tag.begun(name), 0.9, 1000)
    node = await tag.experiment(name)
    assert (node["status"], node["committed"], node["contended"]) == ("keep", True, True)
    assert (await tag.traces())[selection["trace_id"]]["in_flight"] == 0


async def test_a_baseline_that_is_taken_back_is_compared_with_no_longer(mine: TagUnderTest) -> None:
    await mine.told("/api/experiment/retract", experiment_id="mar11-1", reason="it was wrong")
    assert (await ended(mine, await mine.begun("mar11-2"), 1.2, 500))["status"] == "keep"


async def test_the_fastest_run_of_the_baseline_s_code_is_compared_with(mine: TagUnderTest) -> None:
    again = await mine.told("/api/experiment/retest", experiment_id="mar11-1")
    await ended(mine, await mine.begun(again["retest_id"]), 0.8, 2000)
    assert (await ended(mine, await mine.begun("mar11-2"), 1.2, 1000))["status"] == "queued"
    third = await mine.told("/api/experiment/retest", experiment_id="mar11-1")
    assert (await ended(mine, await mine.begun(third["retest_id"]), 0.8, 1000))["status"] == "queued"


async def test_a_first_run_that_was_disturbed_does_not_count(mine: TagUnderTest) -> None:
    for value in (0.5, 0.6):
        again = await mine.told("/api/experiment/retest", experiment_id="mar11-1")
        await ended(mine, await mine.begun(again["retest_id"]), value, 2000)

    await mine.told("/api/experiment/judge-retests", tag="mar11", experiment_ids=["mar11-1"])

    best = (await mine.told("/api/experiment/best", tag="mar11"))["best"]
    assert (best["experiment_id"], best["val_bpb"]) == ("mar11-1", pytest.approx(0.55))
    assert (await Tags(mine.lab).get("mar11")).baseline_val_bpb == pytest.approx(0.55)
    assert await mine.faults() == []


@pytest.mark.usefixtures("trainable")
async def test_a_run_of_a_certificate_is_judged_whatever_its_pace(mine: TagUnderTest) -> None:
    await ended(mine, await mine.begun("mar11-2"), 0.9, 1000)
    certificate = (await mine.told("/api/trust/certify", experiment_id="mar11-2"))["certificate"]
    for name in (certificate["pairs"][0]["candidate"], certificate["pairs"][0]["reference"]):
        assert (await ended(mine, await mine.begun(name), 0.9, 500))["status"] == "measured"
