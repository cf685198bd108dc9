"""GET and HEAD change nothing, whoever sends them: what they leave in Redis is that somebody was there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from functions.kernel.process.lifecycle import Process
from functions.kernel.table import table
from state.records import ROLES
from tests.conftest import http_client, served_client
from tests.functions.kernel.test_table import a_long_story
from tests.labs import PRESENCE, add_gpu, dump, idea, registered, told

VARIANTS: dict[str, list[dict[str, str]]] = {
    "experiment::wait": [{"timeout": "0.05"}, {"timeout": "0.05", "until": "finished"}],
    "report::progress": [{"tag": "mar11"}],
}
"""Parameters worth sending, beside none and a wrong one."""
NAMED = {
    "experiment_id": ["mar11-1", "mar11-3", "OPEN", "QUEUED", "none-1"],
    "invocation_id": ["mar11-4.1", "none-1.0"],
    "worker_id": ["w1", "nobody"],
    "hypothesis_id": ["HYPOTHESIS", "hyp_000000"],
    "gpu_id": ["g0", "hot", "nowhere"],
    "format": ["svg", "png", "gif"],
}
FIXED = [
    *("/", "/static/style.css", "/docs", "/openapi.json", "/healthz", "/readyz", "/metrics", "/api/session"),
    "/no/such",
]
EVENTS = ["?min_interval=never", "?since=never", "?last=0&tag=mar11&unknown=1"]
READS = [(name, d) for name, found in table().items() for d in found.doors if not found.writes]


class Past(NamedTuple):
    """A lab in which much has happened."""

    process: Process
    people: dict[str, dict[str, str]]
    """A header for each role, and for nobody."""
    ids: dict[str, str]
    """What is open in it."""


@pytest.fixture
async def lab(process: Process) -> Past:
    async with http_client(process) as http:
        await a_long_story(http, process)
        root = await process.tokens.issue(name="root", role="operator", issued_by="local")
        http.headers["authorization"] = f"Bearer {root.text}"
        await add_gpu(http, "hot")
        await told(http, "/api/pool/heartbeat", gpu_id="hot", health={"temperature_c": 99})
        await told(http, "/register", worker_id="w1", gpu_type="H100", baseline_bpb=1.0)
        claims = (await told(http, "/api/hypothesis/bootstrap", tag="swarm"))["added"]
        opened = await registered(http)
        queued = (await told(http, "/api/experiment/submit", **idea()))["experiment_id"]
    people: dict[str, dict[str, str]] = {"none": {}}
    for role in ROLES:
        issued = await process.tokens.issue(name=f"one-{role}", role=role, issued_by="root")
        people[role] = {"authorization": f"Bearer {issued.text}"}
    for key in await dump(process.lab):
        await process.lab.command("PERSIST", key)  # else a ticket would end while all is read
    unhurried = process.settings.model_copy(update={"rate_per_s": 1e6})
    return Past(
        replace(process, settings=unhurried),
        people,
        {"OPEN": opened, "QUEUED": queued, "HYPOTHESIS": claims[0]},
    )


async def everything(process: Process) -> dict[str, Any]:
    """The whole lab, RQ's part too. Its agent's last word is presence; an open experiment is not."""
    lab = process.lab
    cursor, queues = await lab.command("SCAN", 0, "MATCH", f"rq:*{lab.name}*", "COUNT", 1_000_000)
    assert int(cursor) == 0
    found = await dump(lab, without=(PRESENCE - {"open"}))
    found[lab.keys("open")] = sorted(await lab.command("ZRANGE", lab.keys("open"), 0, -1))
    return found | {"rq": sorted(queues)}


def urls(path: str, name: str, ids: dict[str, str]) -> list[str]:
    """A route with everything that can be named in it, with and without parameters."""
    found = [path]
    for field, values in NAMED.items():
        if f"{{{field}}}" in path:
            found = [path.replace(f"{{{field}}}", ids.get(value, value)) for value in values]
    queries = ["", "?no_such_field=1"] if name != "experiment::wait" else ["?no_such_field=1"]
    queries += ["?" + "&".join(f"{k}={v}" for k, v in chosen.items()) for chosen in VARIANTS.get(name, [])]
    return [url + query for url in found for query in queries]


async def test_no_get_changes_anything(lab: Past) -> None:
    process, people, ids = lab
    asked = [
        (name, url) for name, door in READS if door.method == "GET" for url in urls(door.path, name, ids)
    ]
    asked += [("fixed", path) for path in FIXED] + [("events", "/api/events" + query) for query in EVENTS]
    before, answered = await everything(process), set()

    async with http_client(process) as http:
        for name, url in asked:
            for headers in (people["none"], people["operator"]):
                for method in ("GET", "HEAD"):
                    response = await http.request(method, url, headers=headers)
                    answered |= {name} if response.status_code in (200, 204) else set()
                    assert response.status_code < 500, url
            assert await everything(process) == before, url

    assert answered == {name for name, _ in asked} - {"events"}


async def test_no_function_that_says_so_changes_anything(lab: Past) -> None:
    process, people, ids = lab
    body: dict[str, Any] = {
        "tag": "mar11",
        "experiment_id": "mar11-1",
        "experiment_a": "mar11-1",
        "experiment_b": "mar11-2",
    }
    body |= {"gpu_id": "hot", "invocation_id": "mar11-4.1"}
    body |= {"worker_id": "w1", "hypothesis_id": ids["HYPOTHESIS"]}
    body |= {"proposal": {"statement": "wider layers learn faster"}}
    before = await everything(process)

    async with http_client(process) as http:
        for name, door in READS:
            if door.method == "POST":
                fields = table()[name].request.model_fields
                sent = {
                    field: value
                    for field, value in body.items()
                    if field in fields and fields[field].is_required()
                }
                path = door.path.replace("{worker_id}", "w1")
                response = await http.post(path, json=sent, headers=people["operator"])

                assert response.status_code == 200, (name, response.text)
                assert await everything(process) == before, name


async def test_an_event_stream_changes_nothing(lab: Past) -> None:
    process, people, _ = lab
    before = await everything(process)

    async with served_client(process) as http:
        for query in ("", "?since=0", "?last=5&tag=mar11"):
            async with http.stream("GET", f"/api/events{query}", headers=people["viewer"]) as answer:
                async for _ in answer.aiter_bytes():
                    break

    assert await everything(process) == before
