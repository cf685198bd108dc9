"""Ticks that a worker reads in a script's output: they rank a run by its loss, and are taken for nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from functions.experiments.views.hints import NO_PROGRESS_LINE
from functions.kernel.process.lifecycle import Process
from functions.runs.rules.stopping import REASON
from functions.swarm.rules.refilling import observation_of
from state.swarm_facts import Observed
from tests.functions.runs.test_stopping import CERTAIN, Lab, pool, told_of
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm, stopping_for_certain
from tests.labs import add_gpu, asked, curl, events_of, open_tag, refused, told

PRINTED = CERTAIN | {"stopping.tick_source": "stdout"}
PRINTED_CLASS = "H100 (stdout)"


@pytest.fixture
async def lab(client: httpx.AsyncClient, process: Process) -> AsyncIterator[Lab]:
    await add_gpu(client)
    found = Lab(client, process)
    yield found
    assert await found.audited() == []


@pytest.fixture
async def swarm(client: httpx.AsyncClient, process: Process) -> AsyncIterator[Swarm]:
    await told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    found = Swarm(client, process)
    await stopping_for_certain(found)
    yield found
    assert await found.audited() == []


async def prints(swarm: Swarm, run_id: str, progress: float, loss: float) -> dict[str, Any]:
    """What a run of a swarm is told whose worker has read this in its output."""
    return await told(swarm.http, "/tick", id=run_id, p=progress, m=loss, tick_source="stdout")


# -- the lab's own workers


async def test_a_run_is_stopped_for_a_loss_that_is_no_value_of_its_metric(lab: Lab) -> None:
    await open_tag(lab.client, policy=PRINTED)
    for n in range(5):
        await lab.run((5 + n / 10, 0.2), (4 + n / 10, 0.4), prints=1 + n / 10)

    worst = await lab.run((6.0, 0.2), (5.9, 0.4))

    assert (lab.orders, lab.runner.sources) == (["stop"], ["stdout"] * 6)
    assert (worst["status"], worst["error"], worst["val_bpb"]) == ("stopped", REASON, None)
    assert (worst["last_metric"], worst["last_progress"], worst["tick_source"]) == (6.0, 0.2, "stdout")
    [event] = await events_of(lab.process, "run.stopping")
    assert (event["metric"], event["tick_source"], event["rank"], event["peers"]) == (6.0, "stdout", 0.0, 5)


async def test_a_script_that_only_prints_is_never_given_more_time(lab: Lab) -> None:
    await open_tag(lab.client, policy=PRINTED)
    for n in range(5):
        await lab.run((5 + n / 10, 0.8), prints=1 + n / 10)
    await lab.run((0.1, 0.8), (0.1, 1.0))
    assert lab.orders == ["continue", "continue"]


async def test_losses_and_reports_of_one_tag_are_ranked_apart(lab: Lab) -> None:
    await open_tag(lab.client, policy=CERTAIN)
    for n in range(5):
        await lab.run((1 + n / 10, 0.2))

    await told(lab.client, "/api/search/set-policy", tag="mar11", policy={"stopping.tick_source": "stdout"})
    printed = await lab.run((9.0, 0.2), prints=1.0)
    await told(lab.client, "/api/search/set-policy", tag="mar11", policy={"stopping.tick_source": "report"})
    reported = await lab.run((9.0, 0.2))

    assert lab.runner.sources == [*["report"] * 5, "stdout", "report"]
    assert printed["status"] != "stopped"
    assert reported["status"] == "stopped"
    assert await lab.pool(0.2, PRINTED_CLASS) == {"mar11-6": 9.0}
    assert len(await lab.pool(0.2)) == 6


async def test_a_tag_that_maximises_its_metric_cannot_be_ranked_by_a_loss(client: httpx.AsyncClient) -> None:
    accuracy = {"name": "accuracy", "direction": "maximize"}
    at_once = {"tag": "t", "metric": accuracy, "policy": {"stopping.tick_source": "stdout"}}
    await open_tag(client, "later", metric=accuracy)

    later = {"tag": "later", "policy": {"stopping": {"tick_source": "stdout"}}}
    for path, fields in (("experiment/setup", at_once), ("search/set-policy", later)):
        answer = await refused(client, 422, f"/api/{path}", **fields)
        assert "lower is better" in answer["detail"]
        assert "report(metric, progress)" in answer["hint"]


async def test_a_run_that_prints_no_progress_is_told_the_line_that_it_lacks(lab: Lab) -> None:
    await open_tag(lab.client, policy=PRINTED)
    await lab.run()
    assert await told_of(lab, "mar11-1") == [NO_PROGRESS_LINE, NO_PROGRESS_LINE]
    assert "step 00123 (12.3%) | loss: 2.345678 |" in NO_PROGRESS_LINE


# -- a swarm


async def test_a_worker_of_a_swarm_is_told_to_read_the_output_only_where_it_is_to(swarm: Swarm) -> None:
    before = await swarm.next("w1")
    started = (await curl(swarm.http, "/runs/start/w1", {})).json()
    await swarm.policy(**{"stopping.tick_source": "stdout"})

    again = await swarm.next("w1")
    await swarm.result("w1", again["run_id"], 0.9)
    after = await swarm.next("w1")
    started_after = (await curl(swarm.http, "/runs/start/w1", {})).json()

    assert "tick_source" not in before
    assert "tick_source" not in started
    assert again == {**before, "tick_source": "stdout"}
    assert (after["tick_source"], started_after["tick_source"]) == ("stdout", "stdout")


async def test_a_swarm_s_run_is_ranked_by_its_loss_whatever_its_worker_s_baseline(swarm: Swarm) -> None:
    await swarm.join("one", baseline_bpb=1.0)
    await swarm.join("other", baseline_bpb=2.0)
    one, other = (await swarm.next("one"))["run_id"], (await swarm.next("other"))["run_id"]
    assert await prints(swarm, one, 0.2, 3.0) == {}

    assert await prints(swarm, other, 0.2, 3.1) == {"action": "stop", "reason": REASON}

    record = await swarm.record(other)
    assert (record.status, record.last_metric, record.tick_source) == ("stopped", 3.1, "stdout")
    assert await pool(swarm.process, 0.2, PRINTED_CLASS, "swarm") == {one: 3.0, other: 3.1}
    assert (await asked(swarm.http, "/runs/stats"))["bucket_pools"]["0.2"]["n"] == 2
    await swarm.result("one", one, 0.9)


async def test_a_run_that_is_handed_out_again_leaves_the_ranks_of_losses_too(swarm: Swarm) -> None:
    run_id = (await swarm.next("one"))["run_id"]
    await prints(swarm, run_id, 0.2, 3.0)
    assert (await swarm.next("one"))["run_id"] == run_id
    assert await pool(swarm.process, 0.2, PRINTED_CLASS, "swarm") == {}
    assert (await swarm.record(run_id)).tick_source == "report"


def test_the_sampler_sees_runs_with_lower_as_better_whatever_the_direction() -> None:
    run = {"status": "discard", "delta_bpb": 0.4}
    ended = Observed.model_validate({"experiment_id": "swarm-1", **run})
    assert observation_of(ended, "minimize").value == pytest.approx(0.4)
    assert observation_of(ended, "maximize").value == pytest.approx(-0.4)
