"""After too many crashes in a row a blocking tag takes the unchanged best, whose success lifts the abort."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from tests.labs import (
    add_gpu,
    crashed,
    events_of,
    idea,
    open_tag,
    refused,
    registered,
    running,
    told,
    tried,
)

BASE = "ba5e0000ba5e"
BEST: dict[str, Any] = {"commit_sha": "badcafe0", "diff": "a patch\n", "config_delta": {"WIDTH": 96}}
BLOCKS: dict[str, Any] = {"on_abort": "block", "baseline_first": False}


@pytest.fixture
async def http(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A tag with a best, in which three runs in a row have crashed since; mar11-2 is under way."""
    await open_tag(client, policy=BLOCKS, base_commit=BASE)
    await tried(client, 1.0, **BEST)
    await registered(client)
    for _ in range(3):
        await crashed(client)
    return client


async def lifted(process: Process) -> list[dict[str, Any]]:
    return [e for e in await events_of(process, "tag.resumed") if e.get("lifted") == "crashes"]


async def test_the_unchanged_best_enters_and_lifts_the_abort(
    http: httpx.AsyncClient, process: Process
) -> None:
    refusal = await refused(http, 409, "/api/experiment/register", **idea())
    again = await told(http, "/api/experiment/register", **idea(**BEST))
    still = await refused(http, 409, "/api/experiment/submit", **idea())
    name = again["experiment_id"]
    verdict = await told(http, "/api/experiment/complete", experiment_id=name, val_bpb=0.99)
    after = await told(http, "/api/experiment/register", **idea())
    await told(http, "/api/experiment/complete", experiment_id="mar11-2", val_bpb=1.1)

    assert "mar11-1, the best, unchanged (commit badcafe0" in refusal["hint"]
    assert refusal["base_commit_sha"] == "badcafe0"
    assert again["duplicate_of"] == "mar11-1"
    assert still["consecutive_crashes"] == 3
    assert (verdict["status"], verdict["repeats_best"]) == ("discard", True)
    assert after["status"] == "registered"
    (event,) = await lifted(process)
    assert (event["crashes"], event["experiment_id"]) == (3, name)
    assert (await told(http, "/api/lab/audit"))["violations"] == []


async def test_where_the_lab_measures_an_agent_s_word_lifts_nothing(
    client: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client, policy=BLOCKS, base_commit=BASE)
    await add_gpu(client)
    e = await running(client, process, **BEST)
    who = {"experiment_id": e.experiment_id, "attempt": e.attempt, "fence": e.fence}
    await told(client, "/api/experiment/complete", **who, val_bpb=1.0)
    for _ in range(3):
        await crashed(client)

    refusal = await refused(client, 409, "/api/experiment/register", **idea())
    name = await registered(client, **BEST)
    claim = await told(client, "/api/experiment/complete", experiment_id=name, val_bpb=0.9)

    assert "submit mar11-1, the best, unchanged" in refusal["hint"]
    assert claim["claimed"]
    await refused(client, 409, "/api/experiment/submit", **idea())
    await told(client, "/api/experiment/submit", **idea(**BEST))
    assert await lifted(process) == []
