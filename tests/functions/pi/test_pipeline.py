"""The draft of a swarm's next program over HTTP: begun, written, confirmed, flushed, and what a restart loses."""

from __future__ import annotations

from typing import Any

import pytest

from functions.kernel.process.lifecycle import opened
from state.settings import Settings
from tests.conftest import http_client
from tests.functions.pi.test_programs_by_models import WRITTEN, author_process
from tests.functions.swarm.test_swarm import Swarm
from tests.labs import asked, events_of, told

EVERY = 4


@pytest.fixture
def settings(settings: Settings) -> Settings:
    switched_on = {"pipeline_enabled": True, "pipeline_auto_deploy": True, "pipeline_least_bank": 0.5}
    return settings.model_copy(update={**switched_on, "pipeline_batch_every": EVERY})


@pytest.fixture(autouse=True)
def _drafts_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("functions.pi.rules.stepping.DRAFT_AFTER", 2)


@pytest.fixture
async def swarm(swarm: Swarm) -> Swarm:
    """A swarm with 56 results, two workers and a generated program, which keeps its populations as they are."""
    await told(swarm.http, "/api/hypothesis/bootstrap", tag="swarm")
    await told(swarm.http, "/api/program/write", tag="swarm")
    lab = swarm.process.lab
    await lab.command("HSET", lab.keys("beliefs", "swarm"), "results", 56, "allocated_at", 10_000)
    for name in ("w1", "w2"):
        await swarm.join(name)
    await followed(swarm)
    return swarm


async def followed(swarm: Swarm) -> list[str]:
    return list((await told(swarm.http, "/api/pipeline/follow", tag="swarm"))["steps"])


async def status(swarm: Swarm) -> dict[str, Any]:
    return await asked(swarm.http, "/pipeline/status")


async def drafted(swarm: Swarm) -> str:
    """The id of a draft that has just begun, while two runs are under way."""
    for name in ("w1", "w2"):
        run = await swarm.next(name)
        await swarm.tick(run["run_id"], 0.2, 1.1)
    assert await followed(swarm) == ["drafting"]
    return str((await status(swarm))["spec_id"])


async def written(swarm: Swarm) -> str:
    """The same, once it is ready."""
    spec_id = await drafted(swarm)
    assert await wrote(swarm, spec_id) == "written"
    return spec_id


async def wrote(swarm: Swarm, spec_id: str) -> str:
    """What became of the writing of a draft."""
    number = int(spec_id.rpartition("-")[2])
    return str((await told(swarm.http, "/api/pipeline/draft", tag="swarm", number=number))["became"])


async def learned(swarm: Swarm, runs: int) -> None:
    """Runs that end, and are learned from."""
    for n in range(runs):
        run_id = await swarm.run(f"w{1 + n % 2}", 1.0)
        await told(swarm.http, "/api/hypothesis/learn", tag="swarm", experiment_ids=[run_id])


async def is_served(swarm: Swarm) -> bool:
    answers = [await swarm.http.get(f"/pipeline/{name}") for name in ("spec", "spec_payload")]
    codes = {a.status_code for a in answers}
    assert codes in ({200}, {204})
    return codes == {200}


async def test_a_pipeline_that_has_not_begun_serves_nothing(swarm: Swarm) -> None:
    found = await status(swarm)

    none = ("spec_state", "spec_id", "confidence", "last_flush_token", "hit_rate")
    begun: dict[str, Any] = {"enabled": True, "auto_deploy": True, "deploy_allowed": False, "batch_id": 14}
    thresholds = {"confidence": 0.65, "deployment_confidence": 0.5}
    begun |= {"thresholds": thresholds, "deployment_confidence": 0.5}
    counts = dict.fromkeys(("ticks_this_batch", "flush_count", "confirmed_count"), 0)
    assert found == dict.fromkeys(none) | begun | counts
    assert not await is_served(swarm)
    assert await asked(swarm.http, "/pipeline/flush_token") == {"flush_token": None}


async def test_a_draft_is_begun_written_served_and_confirmed(swarm: Swarm) -> None:
    spec_id = await drafted(swarm)
    assert (await status(swarm))["spec_state"] == "drafting"
    assert (await status(swarm))["ticks_this_batch"] == 2
    assert not await is_served(swarm)

    assert await wrote(swarm, spec_id) == "written"
    payload = await asked(swarm.http, "/pipeline/spec_payload")
    document = (await swarm.http.get("/pipeline/spec")).text
    trust = {"confidence": 1.0, "deployment_confidence": 0.5}
    assert payload == {"spec_id": spec_id, "program_md": document} | trust
    charter, _, block = document.partition("## Current direction")
    assert charter == (await swarm.http.get("/program.md")).text.partition("## Current direction")[0]
    assert "Why: most workers test the claim" in block
    assert "investigate" in block
    assert (await status(swarm))["deploy_allowed"]

    await learned(swarm, EVERY)
    assert await followed(swarm) == ["confirmed"]
    found = await status(swarm)
    assert (found["spec_state"], found["spec_id"], found["batch_id"]) == ("confirmed", spec_id, 15)
    assert (found["confirmed_count"], found["hit_rate"]) == (1, 1.0)
    assert found["deployment_confidence"] == pytest.approx(0.58)
    assert await is_served(swarm)
    [due] = await events_of(swarm.process, "pipeline.due")
    assert due == {"subject": "swarm", "results": 60}
    for kind in ("drafting", "ready", "confirmed"):
        [event] = await events_of(swarm.process, f"pipeline.{kind}")
        assert (event["subject"], event["spec_id"]) == (spec_id, spec_id)
    assert (await told(swarm.http, "/pipeline/flush"))["flushed"] is None, "it is confirmed"
    assert await status(swarm) == found
    assert await is_served(swarm)


async def test_a_confirmed_draft_is_the_next_version_unless_a_later_one_says_the_same(swarm: Swarm) -> None:
    spec_id = await written(swarm)
    adopting = {"tag": "swarm", "spec_id": spec_id}
    assert (await told(swarm.http, "/api/pipeline/adopt", **adopting))["number"] is None
    await learned(swarm, EVERY)
    await followed(swarm)
    stale = (await told(swarm.http, "/api/program/write", tag="swarm"))["number"]
    assert (await told(swarm.http, "/api/pipeline/adopt", **adopting))["number"] is None
    await swarm.process.lab.command("RPOP", swarm.process.lab.keys("programs", "swarm"))
    assert stale == 2

    adopted = [(await told(swarm.http, "/api/pipeline/adopt", **adopting))["number"] for _ in range(2)]

    assert adopted == [2, None]
    assert (await swarm.http.get("/program.md")).text == (await swarm.http.get("/pipeline/spec")).text


async def test_a_worker_preloads_the_draft_with_what_its_population_does(swarm: Swarm) -> None:
    shown = {"Authorization": f"Bearer {await swarm.join('w3')}"}
    await written(swarm)
    document = (await swarm.http.get("/pipeline/spec")).text

    preloaded = (await swarm.http.get("/pipeline/spec_payload", headers=shown)).json()["program_md"]
    synced = (await swarm.http.get("/sync/w3", headers=shown)).json()

    def own(text: str) -> str:
        return text.partition("### Your population")[2]

    assert synced["population_id"] in own(preloaded)
    assert own(preloaded) == own(synced["program_md"])
    assert preloaded.partition("## Current direction")[2].partition("\n\n### Your population")[0] in document
    assert own(document) == own((await asked(swarm.http, "/pipeline/spec_payload"))["program_md"]) == ""


async def test_a_language_model_writes_the_draft(swarm: Swarm, monkeypatch: pytest.MonkeyPatch) -> None:
    async with author_process(swarm.process, monkeypatch, WRITTEN) as (pi, stage):
        spec_id = await drafted(swarm)
        assert await wrote(swarm, spec_id) == "asked"
        assert not await is_served(swarm)
        call = pi.invoker.system("pi", "queue")
        job = {"tag": "swarm", "number": int(spec_id.rpartition("-")[2])}
        answers = [(await pi.invoker.call("pipeline::draft", job, call)).model_dump() for _ in range(2)]

    assert answers[0]["author"].startswith("anthropic ")
    assert answers[1]["author"] is None
    [request] = stage.received
    assert "predicted to decide" in str(request.body)
    assert "most workers test the claim" in str(request.body)
    document = (await swarm.http.get("/pipeline/spec")).text
    assert "Set LR to 0.01 and vary DEPTH from 4 to 8." in document
    assert document.count("NIGHTJAR_MUTABLE_END") == 1


async def test_a_flushed_draft_is_served_no_more_at_once(swarm: Swarm) -> None:
    spec_id = await written(swarm)

    answer = await told(swarm.http, "/pipeline/flush?reason=another+plan")

    assert answer == {"ok": True, "reason": "another plan", "flushed": spec_id}
    assert not await is_served(swarm)
    assert await asked(swarm.http, "/pipeline/flush_token") == {"flush_token": spec_id}
    found = await status(swarm)
    assert (found["flush_count"], found["hit_rate"], found["spec_state"]) == (1, 0.0, None)
    assert found["deployment_confidence"] == pytest.approx(0.3)
    [event] = await events_of(swarm.process, "pipeline.flushed")
    assert (event["reason"], event["why"], event["spec_id"]) == ("operator", "another plan", spec_id)
    assert (await told(swarm.http, "/pipeline/flush"))["flushed"] is None
    assert (await status(swarm))["flush_count"] == 1
    assert await wrote(swarm, spec_id) == "nothing"
    assert not await is_served(swarm)


async def test_a_lab_that_drafts_nothing_ahead_serves_nothing(settings: Settings, swarm: Swarm) -> None:
    await written(swarm)
    off = settings.model_copy(update={"pipeline_enabled": False})
    async with opened("web", off) as process, http_client(process) as http:
        assert (await http.get("/pipeline/spec")).status_code == 204
        assert (await told(http, "/api/pipeline/follow", tag="swarm"))["steps"] == []
        assert not (await asked(http, "/pipeline/status"))["deploy_allowed"]
