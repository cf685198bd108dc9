"""Trusted scores: who may measure and report them, and where they are shown."""

from __future__ import annotations

from typing import Any

import httpx

from functions.kernel.process.lifecycle import Process
from tests.functions.conftest import TagUnderTest, lease
from tests.labs import (
    add_gpu,
    asked,
    bearer,
    open_tag,
    problem,
    refused,
    registered,
    told,
)

BASE = "abc1234abc1234abc1234abc1234abc1234abc12"
COMMAND = "python prepare.py --score"


async def opened(client: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    return await open_tag(client, base_commit=BASE, evaluator_command=COMMAND, **more)


async def test_an_agent_cannot_give_an_evaluator_command(process: Process, local: httpx.AsyncClient) -> None:
    local.headers.update(await bearer(process, "ann", "agent"))
    body = {"tag": "mar11", "base_commit": BASE, "evaluator_command": COMMAND}

    document = problem(await local.post("/api/experiment/setup", json=body), 403)

    assert "only operators" in document["detail"]
    assert "leave evaluator_command out" in document["hint"]
    problem(await local.post("/api/report/brief", json={"tag": "mar11"}), 404)
    await told(local, "/api/experiment/setup", tag="mar11", base_commit=BASE)


async def test_an_operator_gives_it_and_every_view_of_the_tag_says_so(client: httpx.AsyncClient) -> None:
    opening = await opened(client)
    await open_tag(client, "mar12")

    assert opening["tag"]["score"] == "trusted"
    for tag, score in (("mar11", "trusted"), ("mar12", "reported")):
        assert (await told(client, "/api/report/brief", tag=tag))["score"] == score
        assert (await told(client, "/api/report/summary", tag=tag))["score"] == score
    listed = (await asked(client, "/api/report/tags"))["tags"]
    assert {tag["name"]: tag["score"] for tag in listed} == {"mar11": "trusted", "mar12": "reported"}


async def test_a_command_is_a_script_of_the_repository_at_a_base_commit(client: httpx.AsyncClient) -> None:
    scripts = ("prepare.py", "bash score.sh", "python -c 1", "python 'a")
    elsewhere = ("python /etc/x.py", "python ../x.py", "python .git/x.py")
    for command in (*scripts, *elsewhere):
        body = {"tag": "mar11", "base_commit": BASE, "evaluator_command": command}
        document = await refused(client, 422, "/api/experiment/setup", **body)
        assert "python prepare.py" in document["hint"]
    document = await refused(client, 422, "/api/experiment/setup", tag="mar11", evaluator_command=COMMAND)
    assert "base_commit" in document["hint"]
    await open_tag(client)
    scored = {"experiment_id": await registered(client), "val_bpb": 0.9, "score": "trusted"}
    document = await refused(client, 422, "/api/experiment/complete", **scored)
    assert "evaluator_command" in document["hint"]


async def ran(tag: TagUnderTest, name: str, **measured: Any) -> dict[str, Any]:
    """What a worker's report of this waiting run is answered."""
    e = await tag.begun(name)
    answer = await tag.report(e, 0.9, **measured)
    assert await tag.report(e, 0.9, **measured) == answer | {"replayed": True}
    await tag.free(e)
    return answer


async def measuring(tag: TagUnderTest) -> None:
    await opened(tag.client, policy={"baseline_first": False})
    await add_gpu(tag.client)


async def test_a_trusted_score_is_shown_with_what_was_reported_wherever_the_value_is(
    tag: TagUnderTest,
) -> None:
    await measuring(tag)

    answer = await ran(tag, await tag.submit(), score="trusted", reported=0.3)

    shown = {
        "complete": answer,
        "get": await tag.experiment("mar11-1"),
        "wait": await tag.asked("/api/experiment/mar11-1/wait?timeout=0"),
        "history": (await tag.told("/api/experiment/history", tag="mar11"))["experiments"][0],
        "best": (await tag.told("/api/experiment/best", tag="mar11"))["experiment"],
        "summary": (await tag.summary())["best"],
    }
    for where, said in shown.items():
        assert (said["val_bpb"], said["score"], said["reported"]) == (0.9, "trusted", 0.3), where
    [line] = (await tag.told("/api/report/brief", tag="mar11"))["last_results"]
    assert (line["val_bpb"], line["reported"]) == (0.9, 0.3)


async def test_an_agent_s_first_run_is_a_claim(tag: TagUnderTest) -> None:
    await measuring(tag)

    answer = await tag.claimed(0.0001)

    assert (answer["status"], answer["claimed"], answer["score"]) == ("discard", True, "reported")
    assert answer["retest"]["retest_id"] == "mar11-1.2"
    await tag.refused(404, "/api/experiment/best", tag="mar11")
    await ran(tag, "mar11-1.2", score="trusted", reported=0.0001)
    await tag.judge("mar11-1.2")
    e = await tag.experiment("mar11-1")
    assert (e["status"], e["val_bpb"], e["score"], e["reported"]) == ("keep", 0.9, "trusted", 0.0001)


async def test_a_worker_sends_only_evaluated_scores(tag: TagUnderTest) -> None:
    await measuring(tag)
    e = await tag.begun(await tag.submit())

    document = await tag.refused(422, "/api/experiment/complete", **lease(e), val_bpb=0.0001)

    assert "not what a run prints" in document["detail"]
    assert (await tag.experiment(e.experiment_id))["status"] == "running"


async def test_only_the_lab_says_that_a_score_is_trusted(process: Process, local: httpx.AsyncClient) -> None:
    root, ann = await bearer(process, "me", "operator"), await bearer(process, "ann", "agent")
    local.headers.update(root)
    await opened(local)
    local.headers.update(ann)
    name = await registered(local)

    body = {"experiment_id": name, "val_bpb": 0.0001, "score": "trusted"}
    document = problem(await local.post("/api/experiment/complete", json=body), 403)

    assert "only the lab's workers" in document["detail"]
    assert (await asked(local, f"/api/experiment/{name}"))["experiment"]["status"] == "registered"


async def test_a_leak_is_invalid_and_says_what_to_do(client: httpx.AsyncClient) -> None:
    await opened(client)
    name = await registered(client)

    answer = await told(
        client, "/api/experiment/crash", experiment_id=name, kind="leak", error="predictions use the future"
    )

    outcome = await asked(client, f"/api/experiment/{name}/wait?timeout=0")
    assert (answer["status"], answer["consecutive_crashes"]) == ("invalid", 0)
    assert "must not know" in outcome["next"]
