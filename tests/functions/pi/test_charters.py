"""Each reader of program.md gets their own charter, with this lab's address and their own name."""

from __future__ import annotations

import re

import httpx

from functions.kernel.process.lifecycle import opened
from state.settings import Settings
from tests.conftest import http_client
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm
from tests.labs import told

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
