"""Programs over HTTP: due versions, each written once, and the charter of each of their readers."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx

from functions.formats.program_document import MARKERS
from functions.kernel.process.lifecycle import opened
from functions.pi.rules.findings import EVERY
from functions.swarm.rules.populations import Population, population_id
from state.program_facts import ProgramAsk
from state.programs import OF_WORKERS, Programs, digest_of
from state.settings import Settings
from tests.conftest import http_client
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm
from tests.labs import events_of, told

START, END = MARKERS


async def refreshed(swarm: Swarm, tag: str | None = "swarm") -> dict[str, Any]:
    return await told(swarm.http, "/api/program/refresh", **({} if tag is None else {"tag": tag}))


async def written(swarm: Swarm) -> dict[str, Any]:
    return await told(swarm.http, "/api/program/write", tag="swarm", reason="the test wants one")


async def with_populations(swarm: Swarm, *populations: Population) -> None:
    key = swarm.process.lab.keys("populations", "swarm")
    for p in populations:
        await swarm.process.lab.command("HSET", key, p.population_id, p.text())


def population(purpose: str, strategy: Any, **more: Any) -> Population:
    return Population(
        population_id("swarm", purpose), strategy, f"hyp_{purpose}", f"{purpose} matters", **more
    )


async def test_a_version_is_written_after_fifty_results_and_once(swarm: Swarm) -> None:
    for _ in range(EVERY - 1):
        await swarm.run("w1", 0.9)
    early = await refreshed(swarm)

    await swarm.run("w1", 0.9)
    answers = await asyncio.gather(*(refreshed(swarm) for _ in range(4)))

    listed = await told(swarm.http, "/api/program/list", tag="swarm")
    assert early["steps"] == {}
    assert {"swarm": "written"} in [a["steps"] for a in answers]
    assert listed["count"] == 1
    [version] = listed["versions"]
    assert (version["author"], version["results"]) == ("templates", EVERY)
    [event] = await events_of(swarm.process, "program.written")
    assert event["author"] == "templates"


async def test_the_document_is_the_charter_with_the_version_in_it(swarm: Swarm) -> None:
    await written(swarm)

    document = (await swarm.http.get("/program.md?tag=swarm")).text

    charter = OF_WORKERS.read_text().replace("mar11", "swarm")
    assert document.partition(START)[0] == charter.partition(START)[0]
    assert document.rpartition(END)[2] == charter.rpartition(END)[2]
    assert "Written by templates after 0 results" in document
    first = await swarm.http.get("/program.md")
    again = await swarm.http.get("/program.md", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304


async def test_two_populations_get_texts_of_their_own(swarm: Swarm) -> None:
    token = await swarm.join("w1")
    await swarm.join("w2")
    one = population("LR", "falsify", target=1, constraint={"LR": {"min": 0.01}})
    other = population("DEPTH", "exploit", target=1, constraint={"DEPTH": [4, 8]})
    await with_populations(swarm, one, other)
    await written(swarm)
    for worker in ("w1", "w2"):
        await swarm.next(worker)

    synced = [(await swarm.http.get(f"/sync/{worker}")).json() for worker in ("w1", "w2")]
    texts = {each["population_id"]: each for each in synced}

    assert token
    assert set(texts) == {one.population_id, other.population_id}
    mine, theirs = texts[one.population_id]["program_md"], texts[other.population_id]["program_md"]
    for word in (one.population_id, "falsify", "hyp_LR", "LR matters", "at least 0.01"):
        assert word in mine
        assert word not in theirs
    for word in (other.population_id, "hyp_DEPTH", "DEPTH matters", "one of 4, 8"):
        assert word in theirs
    assert texts[one.population_id]["program_digest"] == digest_of(mine)


async def test_versions_are_kept_and_each_shows_what_it_changed(swarm: Swarm) -> None:
    await written(swarm)
    await swarm.run("w1", 0.9)
    await written(swarm)

    listed = await told(swarm.http, "/api/program/list", tag="swarm")
    shown = await told(swarm.http, "/api/program/diff", tag="swarm")
    first = await told(swarm.http, "/api/program/diff", tag="swarm", number=1)

    assert [v["number"] for v in listed["versions"]] == [2, 1]
    assert (shown["number"], shown["against"]) == (2, 1)
    assert "-(Written by templates after 0 results.)" in shown["diff"]
    assert "+(Written by templates after 1 results.)" in shown["diff"]
    assert first["diff"].startswith("--- program.md version 0")
    assert all(line.startswith(("+", "---", "@@")) for line in first["diff"].splitlines())


async def test_an_asking_is_noted_once_for_each_attempt_and_ends_with_the_version(swarm: Swarm) -> None:
    programs = Programs(swarm.process.lab)

    first, again, second, third_too_soon = [
        await programs.ask("swarm", ProgramAsk(1, attempt, 0.0, "why")) for attempt in (1, 1, 2, 4)
    ]
    waiting = await programs.asked()
    await written(swarm)

    assert (first, again, second, third_too_soon) == (True, False, True, False)
    assert waiting == ["swarm"]
    assert await programs.asked() == []
    assert (await programs.due_facts("swarm")).ask is None


EXAMPLES = re.compile(r"127\.0\.0\.1:3111|\bmar11\b|\balice\b")
"""Whose address, tag and name the files have."""
AT = {"host": "127.0.0.1:4711"}


async def read(http: httpx.AsyncClient, path: str, **headers: str) -> str:
    answer = await http.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_a_lab_without_a_swarm_shows_the_charter_of_agents(client: httpx.AsyncClient) -> None:
    program = await read(client, "/program.md", **AT)
    assert program.startswith("# Program\n")
    assert "Nightjar answers at `http://127.0.0.1:4711`" in program
    assert "127.0.0.1:3111" not in program


async def test_what_is_no_name_or_host_is_put_into_no_command(client: httpx.AsyncClient) -> None:
    for path in ("/program.md?name=$(id)", "/program.md?tag=a%20b", "/program-other.md"):
        assert (await client.get(path)).status_code in (404, 422)
    assert "$(id)" not in await read(client, "/program.md", host="127.0.0.1:4711/$(id)")


async def test_a_worker_gets_a_charter_of_its_own_with_its_name_and_the_lab_s_address(swarm: Swarm) -> None:
    await told(swarm.http, "/api/program/write", tag="swarm")
    body = {"worker_id": "h100-3", "gpu_type": "H100", "baseline_bpb": 1.0, "tag": "swarm"}
    joined = (await swarm.http.post("/register", json=body, headers=AT)).json()

    headers = {"X-Worker-Token": joined["worker_token"], **AT}
    synced = (await swarm.http.get("/sync/h100-3", headers=headers)).json()

    for text in (joined["current_program_md"], synced["program_md"]):
        assert text.startswith("# Program of a worker\n")
        assert "You are `h100-3`, in the swarm of the tag `swarm`" in text
        assert "http://127.0.0.1:4711/next_config/h100-3" in text
        assert "Written by templates after 0 results" in text
        assert EXAMPLES.findall(text) == []
        assert not re.search(r"\bgit\b|\bbranch", text)


async def test_a_swarm_shows_its_workers_charter_and_sends_it_with_the_first_version(swarm: Swarm) -> None:
    token = await swarm.join("w1")
    before = await read(swarm.http, "/program.md?name=w1")
    synced = (await swarm.http.get("/sync/w1", headers={"X-Worker-Token": token})).json()
    assert before.startswith("# Program of a worker\n")
    assert "next_config/w1" in before
    assert "too few results" in before
    assert synced["program_md"] == ""


async def test_the_operator_s_own_charter_is_sent_to_everybody_byte_for_byte(settings: Settings) -> None:
    assert settings.data_dir is not None
    file = settings.data_dir / "mine.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("# Mine\n\nAsk alice, not malice, about mar11.\n")
    async with (
        opened("web", settings.model_copy(update={"program": file})) as process,
        http_client(process) as http,
    ):
        await told(http, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
        before = await read(http, "/program.md?name=w1")
        await told(http, "/api/program/write", tag="swarm")
        after = await read(http, "/program.md?name=w1")

    assert before == file.read_text()
    assert after.startswith(before)
    assert "Written by templates" in after
