"""The journal of a swarm over HTTP: when a checkpoint is written, and that it stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from state.journal import MOST_BYTES
from state.records import Hypothesis
from state.settings import Settings
from tests.conftest import http_client
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm
from tests.labs import events_of, open_tag, refused, told, tried


@pytest.fixture
async def swarm(client: httpx.AsyncClient, process: Process) -> AsyncIterator[Swarm]:
    await told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    await told(client, "/api/hypothesis/bootstrap", tag="swarm")
    found = Swarm(client, process)
    yield found
    assert await found.audited() == []


async def learned(swarm: Swarm, runs: int, value: float = 0.9) -> None:
    """Runs of one worker that were learned from."""
    for _ in range(runs):
        run_id = await swarm.run("w1", value)
        await told(swarm.http, "/api/hypothesis/learn", tag="swarm", experiment_id=run_id)


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


async def test_a_swarm_whose_claims_are_all_settled_goes_on_counting_its_results(swarm: Swarm) -> None:
    lab = swarm.process.lab
    await lab.command("HSET", lab.keys("beliefs", "swarm"), "results", 99)
    open_claims, archive = lab.keys("hypotheses", "swarm"), lab.keys("archived_hypotheses", "swarm")
    for claim, text in (await lab.hash(open_claims)).items():
        settled = Hypothesis.model_validate_json(text).model_copy(update={"settled": "refuted"})
        await lab.command("HSET", archive, claim, settled.model_dump_json(exclude_none=True))
    await lab.command("DEL", open_claims)
    await swarm.join("w1")

    await learned(swarm, 1)

    assert await events_of(swarm.process, "journal.due") == [{"subject": "swarm", "results": 100}]
    assert (await checkpoint(swarm, results=100))["written"]


async def test_a_tag_that_never_had_a_claim_counts_no_results(
    client: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client)
    name = (await tried(client, 1.0))["experiment_id"]

    await told(client, "/api/hypothesis/learn", tag="mar11", experiment_id=name)

    lab = process.lab
    assert await lab.hash(lab.keys("beliefs", "mar11")) == {}
    assert await lab.command("HEXISTS", lab.keys.experiment(name), "learned_at") == 0


async def test_on_demand_a_checkpoint_is_written_where_anything_is_new(swarm: Swarm) -> None:
    await swarm.join("w1")
    first = await checkpoint(swarm)
    assert first["written"]
    assert "| `LR matters` | 0.50 | 0.50 | +0.00 | 0 | active |" in first["text"]
    assert "(new)" in first["text"]
    assert await checkpoint(swarm) == {"written": False, "number": 1, "text": None}

    await learned(swarm, 4)
    second = await checkpoint(swarm)

    assert second["number"] == 2
    assert "### New hypotheses generated\n\nNone.\n" in second["text"]
    assert await journal(swarm.http) == first["text"] + "\n" + second["text"]


async def test_a_tag_without_beliefs_has_nothing_to_tell_and_a_missing_one_is_refused(
    client: httpx.AsyncClient,
) -> None:
    await told(client, "/api/experiment/setup", tag="mar11")

    nothing = await told(client, "/api/journal/checkpoint", tag="mar11")

    assert nothing == {"written": False, "number": None, "text": None}
    await refused(client, 404, "/api/journal/checkpoint", tag="nowhere")
    assert await journal(client) == ""
    listed = await told(client, "/api/journal/list", tag="nowhere")
    assert (listed["count"], listed["checkpoints"]) == (0, [])


async def test_what_was_eliminated_is_quoted_with_its_newest_evidence(swarm: Swarm) -> None:
    await swarm.join("w1")
    await checkpoint(swarm)
    lab, keys = swarm.process.lab, swarm.process.lab.keys
    found = (await told(swarm.http, "/api/hypothesis/list", tag="swarm"))["hypotheses"]
    [name] = [h["hypothesis_id"] for h in found if h["statement"] == "DEPTH matters"]
    kept = json.loads(await lab.command("HGET", keys("hypotheses", "swarm"), name))
    evidence = {"experiment_id": "swarm-7", "outcome": 0.0, "against": "reference", "reference_id": "swarm-6"}
    gone = kept | {"settled": "refuted", "status": "refuted", "beta": 14.0, "n_experiments": 12}
    await lab.command("HSET", keys("archived_hypotheses", "swarm"), name, json.dumps(gone))
    await lab.command("HDEL", keys("hypotheses", "swarm"), name)
    await lab.command(
        "HSET", keys("hypothesis_evidence", "swarm"), name, json.dumps([evidence | {"contrast": 0.25}])
    )
    await lab.command("HINCRBY", keys("beliefs", "swarm"), "version", 1)

    text = (await checkpoint(swarm))["text"]

    assert (
        "| `DEPTH matters` | refuted | swarm-7: a loss against the reference run swarm-6, contrast +0.250000 |"
        in text
    )
    assert "| `DEPTH matters` | 0.50 | 0.12 | -0.38 | 12 | settled: refuted |" in text
    [*_, event] = await events_of(swarm.process, "journal.written")
    assert event["eliminated"] == 1


async def test_processes_that_write_at_once_write_it_once(swarm: Swarm, settings: Settings) -> None:
    async with opened("web", settings) as other, http_client(other) as http:
        body = {"tag": "swarm", "results": 1}
        lab = swarm.process.lab
        await lab.command("HSET", lab.keys("beliefs", "swarm"), "results", 100)

        answers = await asyncio.gather(
            *(
                told(asker, "/api/journal/checkpoint", **body)
                for asker in (swarm.http, http)
                for _ in range(8)
            )
        )

    assert sorted(a["written"] for a in answers) == [False] * 15 + [True]
    assert {a["number"] for a in answers} == {1}
    assert (await told(swarm.http, "/api/journal/list"))["count"] == 1
    assert len(await events_of(swarm.process, "journal.written")) == 1


async def test_after_restarts_every_checkpoint_is_there_and_the_numbers_go_on(settings: Settings) -> None:
    texts: list[str] = []
    for nth in range(3):
        async with opened("web", settings) as process, http_client(process) as http:
            swarm = Swarm(http, process)
            if nth == 0:
                await told(http, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
                await told(http, "/api/hypothesis/bootstrap", tag="swarm")
                await swarm.join("w1")
            await learned(swarm, 2)
            texts.append((await checkpoint(swarm))["text"])

            assert await journal(http) == "\n".join(texts)

    assert [text.split(" · ")[0] for text in texts] == [f"## Checkpoint {n}" for n in (1, 2, 3)]
    assert [text.split(" · ")[1] for text in texts] == ["2 experiments", "4 experiments", "6 experiments"]


async def test_a_long_journal_is_read_in_parts(swarm: Swarm) -> None:
    lab = swarm.process.lab
    texts = [f"## Checkpoint {n}\n{'x' * (MOST_BYTES // 3)}\n" for n in range(1, 8)] + [
        "y" * MOST_BYTES + "\n"
    ]
    await lab.command("RPUSH", lab.keys("journal", "swarm"), *texts)

    newest = await journal(swarm.http)
    parts = [await told(swarm.http, "/api/journal/list", first=first) for first in (1, 3, 8, 9)]

    assert newest.startswith("Checkpoints 1 to 7 are left out here: `./nightjar journal --tag swarm`")
    assert newest.endswith(texts[-1])
    assert [part["count"] for part in parts] == [8] * 4
    shown = [[(c["number"], c["text"]) for c in part["checkpoints"]] for part in parts]
    assert shown == [
        [(1, texts[0]), (2, texts[1])],
        [(3, texts[2]), (4, texts[3])],
        [(8, texts[7])],
        [],
    ]


async def test_the_journal_is_read_without_a_token_and_written_by_operators_alone(
    swarm: Swarm, process: Process
) -> None:
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
