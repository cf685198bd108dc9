"""The journal of a swarm over HTTP: when a checkpoint is written, and that it stays."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.hypotheses import MOST_BYTES
from tests.functions.swarm.test_swarm import Swarm
from tests.labs import events_of, told


@pytest.fixture
async def swarm(swarm: Swarm) -> Swarm:
    await told(swarm.http, "/api/hypothesis/bootstrap", tag="swarm")
    return swarm


async def learned(swarm: Swarm, runs: int, value: float = 0.9) -> None:
    """Runs of one worker that were learned from."""
    for _ in range(runs):
        run_id = await swarm.run("w1", value)
        await told(swarm.http, "/api/hypothesis/learn", tag="swarm", experiment_ids=[run_id])


async def checkpoint(swarm: Swarm, **asks: Any) -> dict[str, Any]:
    return await told(swarm.http, "/api/journal/checkpoint", tag="swarm", **asks)


async def journal(http: httpx.AsyncClient) -> str:
    response = await http.get("/meta_log")
    assert (response.status_code, response.headers["content-type"]) == (200, "text/markdown; charset=utf-8")
    return response.text


async def test_the_hundredth_result_makes_a_checkpoint_due(swarm: Swarm) -> None:
    lab = swarm.process.lab
    await lab.command("HSET", lab.keys("beliefs", "swarm"), "results", 98, "references", 20)
    await swarm.join("w1")

    await learned(swarm, 1)
    assert await events_of(swarm.process, "journal.due") == []
    await learned(swarm, 2)

    assert await events_of(swarm.process, "journal.due") == [{"subject": "swarm", "results": 100}]
    written = await checkpoint(swarm, results=100)
    assert (written["written"], written["number"]) == (True, 1)
    assert written["text"].startswith("## Checkpoint 1 · 101 experiments · ")
    references = int(await lab.command("HGET", lab.keys("beliefs", "swarm"), "references"))
    assert 20 < references <= 23
    assert f"Reference runs: {references} of 101 ({references}%)" in written["text"]
    again = await checkpoint(swarm, results=100)
    assert again == {"written": False, "number": 1, "text": None}
    assert await journal(swarm.http) == written["text"]
    [event] = await events_of(swarm.process, "journal.written")
    assert event == {"subject": "swarm", "number": 1, "results": 101, "eliminated": 0, "proposed": 3}


async def test_a_long_journal_is_read_in_parts(swarm: Swarm) -> None:
    lab = swarm.process.lab
    texts = [f"## Checkpoint {n}\n{'x' * (MOST_BYTES // 3)}\n" for n in range(1, 8)]
    texts.append("y" * MOST_BYTES + "\n")
    await lab.command("RPUSH", lab.keys("journal", "swarm"), *texts)

    newest = await journal(swarm.http)
    parts = [await told(swarm.http, "/api/journal/list", first=first) for first in (1, 3, 8, 9)]

    assert newest.startswith("Checkpoints 1 to 7 are left out here: `./nightjar journal --tag swarm`")
    assert newest.endswith(texts[-1])
    assert [part["count"] for part in parts] == [8] * 4
    shown = [[(c["number"], c["text"]) for c in part["checkpoints"]] for part in parts]
    assert shown == [[(1, texts[0]), (2, texts[1])], [(3, texts[2]), (4, texts[3])], [(8, texts[7])], []]


async def test_the_journal_is_read_by_all_and_written_by_operators(swarm: Swarm, process: Process) -> None:
    await checkpoint(swarm)
    root = await process.tokens.issue(name="root", role="operator", issued_by="local")
    viewer = await process.tokens.issue(name="ann", role="viewer", issued_by="root")
    bearing = {"authorization": f"Bearer {viewer.text}"}

    assert "## Checkpoint 1" in await journal(swarm.http)
    listed = await swarm.http.post("/api/journal/list", json={"tag": "swarm"}, headers=bearing)
    assert listed.json()["count"] == 1
    wanted = await swarm.http.post("/api/journal/checkpoint", json={"tag": "swarm"}, headers=bearing)
    assert wanted.status_code == 403
    swarm.http.headers["authorization"] = f"Bearer {root.text}"  # for the audit
