"""Programs over HTTP: due versions, their readers, and each number written once."""

from __future__ import annotations

import asyncio
from typing import Any

from functions.formats.program_document import MARKERS
from functions.pi.rules.findings import EVERY
from functions.swarm.rules.populations import Population, population_id
from state.program_facts import ProgramAsk
from state.programs import OF_WORKERS, Programs, digest_of
from tests.functions.swarm.test_swarm import Swarm
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


async def test_before_the_first_version_readers_keep_what_they_have(swarm: Swarm) -> None:
    await refreshed(swarm, None)
    joined = await told(
        swarm.http, "/register", worker_id="w1", gpu_type="H100", baseline_bpb=1.0, tag="swarm"
    )

    program = await swarm.http.get("/program.md")
    headers = {"X-Worker-Token": joined["worker_token"]}
    synced = (await swarm.http.get("/sync/w1", headers=headers)).json()

    assert joined["current_program_md"] == ""
    assert program.text.startswith("# Program of a worker\n")
    assert (synced["program_md"], synced["program_digest"]) == ("", digest_of(""))


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


async def test_the_digest_changes_with_the_populations_strategy_target_or_claim_alone(swarm: Swarm) -> None:
    await swarm.join("w1")
    await written(swarm)
    digests = []
    for strategy, target in (("falsify", 1), ("falsify", 1), ("investigate", 1), ("investigate", 2)):
        await with_populations(swarm, population("LR", strategy, target=target))
        digests.append((await swarm.http.get("/sync/w1")).json()["program_digest"])
    assert digests[0] == digests[1]
    assert len(set(digests[1:])) == 3


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
