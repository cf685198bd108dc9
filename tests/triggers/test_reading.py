"""GET and HEAD change nothing, whoever sends them: what they leave in Redis is that somebody was there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from functions.kernel.table import table
from state.experiments import Experiments
from state.ids import named_by
from state.records import ROLES
from tests.conftest import http_client, served_client
from tests.labs import (
    PRESENCE,
    add_gpu,
    crashed,
    dump,
    expire,
    idea,
    open_tag,
    registered,
    running,
    silence,
    told,
    tried,
)

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


async def a_long_story(client: httpx.AsyncClient, process: Process) -> None:
    """Everything that a lab can go through, once."""
    experiments = Experiments(process.lab)
    await open_tag(client)
    await tried(client, 1.0)
    await tried(client, 1.001, diff="+x\n")
    await crashed(client)
    await told(client, "/api/experiment/resume", tag="mar11")
    await told(client, "/api/search/set-strategy", tag="mar11", mode="exploit", reason="r")
    await told(client, "/api/search/set-policy", tag="mar11", policy={"crash_limit": 4})
    await add_gpu(client, "g0")
    e = await running(client, process)
    await experiments.renew(e.experiment_id, "g0", e.fence, 60, (1.0, 0.5))
    await experiments.keep_log(e, "log")
    await experiments.keep_evidence(e.experiment_id, "digest", {"op": "crash"})
    await told(client, "/api/pool/heartbeat", gpu_id="g0", fence=e.fence, health={"temperature_c": 50})
    await told(client, "/api/experiment/stop", experiment_id=e.experiment_id)
    await expire(process.lab, "g0")
    await told(client, "/api/pool/sweep")
    await silence(process.lab, "g0")
    await told(client, "/api/pool/sweep")
    await told(client, "/api/pool/drain", gpu_id="g0")
    await open_tag(client, "sure", policy={"keep_rule": "confirmed"})
    for value, again in ((1.0, 1.001), (0.99, 1.002)):
        e_id = (await tried(client, value, "sure"))["experiment_id"]
        retest = await told(client, "/api/experiment/retest", experiment_id=e_id, train=False)
        await told(client, "/api/experiment/complete", experiment_id=retest["retest_id"], val_bpb=again)
    await told(client, "/api/experiment/judge-retests", tag=named_by(e_id)[1], experiment_ids=[e_id])
    await add_gpu(client, "g1")
    await told(client, "/api/pool/acquire", experiment_id=await registered(client))
    await told(client, "/api/pool/release", gpu_id="g1")
    await told(client, "/api/tag/budget", tag="mar11", runs=100)
    await told(client, "/api/dimension/define", tag="swarm", profile="mnist")
    await told(client, "/api/tag/pause", tag="mar11")
    await told(client, "/api/experiment/submit", **idea())
    await told(client, "/api/tag/unpause", tag="mar11")
    await told(client, "/api/pool/deregister", gpu_id="g1")
    await a_forest(client)


async def a_forest(client: httpx.AsyncClient) -> None:
    """Everything that traces can go through, once."""
    policy = {"traces.mode": "multi", "traces.target_traces": 2, "traces.max_parallel": 4}
    await told(client, "/api/search/set-policy", tag="mar11", policy=policy)
    for value in (0.9, 0.8):
        chosen = await told(client, "/api/trace/select", tag="mar11", agent="a")
        await told(client, "/api/trace/renew", selection_id=chosen["selection_id"])
        await tried(client, value, selection_id=chosen["selection_id"])
    chosen = await told(client, "/api/trace/merge", tag="mar11")
    await tried(client, 0.7, selection_id=chosen["selection_id"])
    chosen = await told(client, "/api/trace/select", tag="mar11", intent="extend")
    await told(client, "/api/trace/release", selection_id=chosen["selection_id"])
    await told(client, "/api/trace/close", tag="mar11", trace_id=chosen["trace_id"])
    await told(client, "/api/trace/reopen", tag="mar11", trace_id=chosen["trace_id"])
    await told(client, "/api/trace/configure", tag="mar11", priorities={chosen["trace_id"]: 1.5})


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
