"""No request holds the web process's event loop: each function's worst legal one, in a lab with plenty of everything.

A web process of its own says itself how much CPU time its loop's thread took without a pause. That takes a minute of
CPU and is a matter of speed, so `./nightjar test --long` measures it; chaos does with `BODIES` and `HEADS`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import uuid
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from functions.formats.patches import LONGEST_PATCH
from functions.kernel.contract import CATEGORIES, MIB, Function
from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.process.meters import LOOK_S
from functions.kernel.schemas import schema_of
from functions.kernel.table import table
from state.client import Lab
from state.embedded import EmbeddedRedis
from state.events import CATALOGUE
from state.records import Hypothesis
from state.settings import Settings
from tests.conftest import http_client
from tests.crowd import LONGEST, TAG, crowd
from tests.labs import add_gpu, asked, idea, open_tag, registered, told
from tests.triggers.test_matrix import sample
from triggers.mcp_tools import NAMES, WHAT
from triggers.ports import free_port

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

RUNS = 4000
WORDY = 1000
TRACES = 100
GPUS = 300
TOKENS = 300
CLAIMS = 800
LETTERS = 1000
HEAVY = 300
CODE, FOREST, SMALL, VARIED = "code", "forest", "small", "varied"
FAR = "far:cpu0"
BRANCHES = {
    "traces.mode": "multi",
    "traces.target_traces": TRACES,
    "traces.max_parallel": TRACES,
    "traces.scheduler": "uct",
}
CONSTANTS = {f"K{n}": [0.5] * 160 for n in range(90)}
"""As many as may be set."""


def longest_patch(seed: int) -> str:
    """As long as a patch may be, of few different lines: what a diff finds no way through."""
    drawn = random.Random(seed)
    choice = [f"+{n:08d}\n" for n in range(150)]
    return "".join(drawn.choices(choice, k=LONGEST_PATCH // 10))


@dataclass
class Web:
    """The web process, and a lab behind it."""

    url: str
    log: Path
    bearer: str

    def client(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.bearer}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=120, verify=False)

    @asynccontextmanager
    async def unheld(self) -> AsyncIterator[None]:
        """No line of its log says that its loop was held for too long within this context."""
        await asyncio.sleep(2 * LOOK_S)
        before = self.log.stat().st_size
        yield
        await asyncio.sleep(2 * LOOK_S)
        lines = self.log.read_bytes()[before:].decode().splitlines()
        assert [line for line in lines if "the event loop was held" in line] == []


@pytest.fixture(scope="module")
def web(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("holding")
    values = {
        "lab": f"t{uuid.uuid4().hex[:12]}",
        "data": str(folder / "data"),
        "port": free_port(0),
        "rate_per_s": 1e6,
        "webhook_private": True,
    }
    bearer = asyncio.run(a_full_lab(Settings.model_validate({**values, "redis_url": redis_server.url})))
    environment = {f"NIGHTJAR_{name.upper()}": str(value) for name, value in values.items()}
    log = folder / "web.log"
    with log.open("w") as told_here:
        web = subprocess.Popen(
            [sys.executable, "-P", "-m", "triggers.web"],
            env={**os.environ, **environment, "NIGHTJAR_REDIS_URL": redis_server.url},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=told_here,
            stderr=told_here,
        )
    url = f"http://127.0.0.1:{values['port']}"
    try:
        with httpx.Client(transport=httpx.HTTPTransport(retries=10)) as patient:
            patient.get(f"{url}/healthz")
        yield Web(url, log, bearer)
    finally:
        web.terminate()
        web.wait()


async def a_full_lab(settings: Settings) -> str:
    """Runs, texts, patches, branches, GPUs, tokens, tags and dead letters; answers an operator's token."""
    async with opened("web", settings) as process, http_client(process) as http:
        root = await process.tokens.issue(name="root", role="operator", issued_by="local")
        http.headers["authorization"] = f"Bearer {root.text}"
        await open_tag(http, TAG, policy={"baseline_first": False})
        await crowd(process.lab, RUNS, wordy=WORDY)
        await weigh_down(process.lab)
        for nth in range(TOKENS):
            await process.tokens.issue(name=f"agent-{nth}", role="agent", issued_by="root")
            await open_tag(http, f"tag-{nth}")
        await told(http, "/api/dimension/define", tag=VARIED, dimensions=WIDE)
        await told(http, "/api/hypothesis/bootstrap", tag=VARIED)
        await many_claims(process)
        await a_full_swarm(http)
        await open_tag(http, CODE, policy={"baseline_first": False})
        for seed in (1, 2):
            await registered(http, CODE, diff=longest_patch(seed))
        await add_gpu(http, FAR, transport="http")
        await told(http, "/api/experiment/submit", **idea(CODE, diff=longest_patch(5)))
        await told(http, "/api/pool/dispatch")
        for nth in range(GPUS):
            await add_gpu(http, f"host:gpu{nth}")
        await open_tag(http, SMALL, policy={"baseline_first": False})
        for _ in range(6):
            await registered(http, SMALL)
        await told(http, "/api/experiment/submit", **idea(SMALL))
        await many_branches(process, http)
        handled = process.stream.events("search::adapt", "test")
        for event in await process.stream.last(LETTERS):
            await handled.bury(event, LONGEST, 8)
        return root.text


async def a_full_swarm(http: httpx.AsyncClient) -> None:
    """Workers with runs, in a tag of as many dimensions as there may be."""
    for nth in range(SWARM):
        joins = {"worker_id": f"w{nth}", "gpu_type": "H100", "baseline_bpb": 1.0, "tag": VARIED}
        await told(http, "/register", **joins)
        run = await asked(http, f"/next_config/w{nth}")
        if nth > SWARM // 2:
            await told(http, "/result", **result_of(nth, run["run_id"]))
            await asked(http, f"/next_config/w{nth}")


def result_of(nth: int, run_id: str) -> dict[str, Any]:
    return {
        "worker_id": f"w{nth}",
        "exp_id": run_id,
        "config": CONSTANTS,
        "val_bpb": 1.0 - nth / 1000,
        "duration_seconds": 1.0,
        "error": None,
    }


async def weigh_down(lab: Lab) -> None:
    """Give the newest runs as many constants, metrics and words of an error as a run may have."""
    heavy = {
        "config_delta": json.dumps(CONSTANTS),
        "metrics": json.dumps({"x" * 96 + f"{n:04}": 0.1234567890123 for n in range(200)}),
        "error": "boom " * 13_000,
    }
    words = [word for pair in heavy.items() for word in pair]
    for nth in range(RUNS - HEAVY + 1, RUNS + 1):
        await lab.command("HSET", lab.keys.experiment(f"{TAG}-{nth}"), *words)


async def many_claims(process: Process) -> None:
    """Settled claims about few dimensions: most pairs of them are linked."""
    texts = [
        Hypothesis(
            hypothesis_id=f"hyp_{nth:06x}",
            tag=VARIED,
            statement=f"{nth} is too low",
            dimensions=[f"D{nth % 3}"],
            settled="refuted",
            created_at=float(nth + 1),
        ).model_dump_json(exclude_none=True)
        for nth in range(CLAIMS)
    ]
    key = process.lab.keys("archived_hypotheses", VARIED)
    pairs = [word for nth, text in enumerate(texts) for word in (f"hyp_{nth:06x}", text)]
    await process.lab.command("HSET", key, *pairs)


async def many_branches(process: Process, http: httpx.AsyncClient) -> None:
    """As many traces as may grow at once, each with a keep or not, and with a selection that is open."""
    await open_tag(http, FOREST, policy={"baseline_first": False, **BRANCHES})
    for round_ in range(3):
        chosen = [
            await told(http, "/api/trace/select", tag=FOREST, agent=f"agent-{nth}") for nth in range(TRACES)
        ]
        for nth, selection in enumerate(chosen if round_ < 2 else []):
            name = await registered(
                http,
                FOREST,
                selection_id=selection["selection_id"],
                agent=f"agent-{nth}",
                category=CATEGORIES[nth % len(CATEGORIES)],
                hypothesis=LONGEST,
                diff_summary=LONGEST,
            )
            await told(
                http, "/api/experiment/complete", experiment_id=name, val_bpb=2.0 - nth / 1000 - round_
            )


SWARM = 200
"""Workers of the swarm of `VARIED`."""
LENT = {"experiment_id": f"{CODE}-3", "attempt": 1, "fence": 1}
"""The run that `FAR` was lent for. It has not begun."""
ACCEPT = {"accept": "application/json", "content-type": "application/json"}
WORDS = {"hypothesis": LONGEST, "description": LONGEST, "diff_summary": LONGEST}
WIDE = [
    {"name": f"D{n}", "dtype": "categorical", "categories": [f"{m:0200}" for m in range(50)]}
    for n in range(64)
]


@cache
def worst() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """The longest requests. Other functions get the tags of `BUSIEST`, or a sample."""
    return {
        "dimension::define": [
            {"tag": "wide", "dimensions": WIDE},
            {"tag": VARIED, "dimensions": WIDE, "replace": True},
        ],
        "dimension::freeze": [{"tag": VARIED, "name": "D63", "value": f"{49:0200}", "reason": LONGEST}],
        "dimension::propose": [
            {
                "tag": VARIED,
                **WIDE[0],
                "name": "OTHER",
                "default_value": f"{49:0200}",
                "rationale": LONGEST[:4000],
            }
        ],
        "dimension::unfreeze": [{"tag": VARIED, "name": "D63", "reason": LONGEST}],
        "event::list": [{}, {"order": "oldest", "types": [*CATALOGUE][:100]}],
        "experiment::complete": [
            {
                "experiment_id": f"{SMALL}-1",
                "val_bpb": 1.0,
                "metrics": {"x" * 60 + str(n): 0.5 for n in range(200)},
            }
        ],
        "experiment::crash": [{"experiment_id": f"{SMALL}-2", "error": "api-key-" * 8192}],
        "experiment::get": [{"experiment_id": "code-1"}, {"experiment_id": f"{TAG}-{RUNS}"}],
        "experiment::history": [{"tag": TAG}, {"tag": TAG, "status": "discard"}],
        "experiment::register": [
            idea(SMALL, diff=longest_patch(3), **WORDS),
            idea(SMALL, config_delta=CONSTANTS, **WORDS),
        ],
        "experiment::submit": [
            idea(SMALL, diff=longest_patch(4), **WORDS),
            idea(SMALL, config_delta=CONSTANTS, **WORDS),
        ],
        "experiment::retest": [{"experiment_id": f"{TAG}-8"}],
        "experiment::retract": [{"experiment_id": f"{TAG}-9", "reason": "it was wrong"}],
        "experiment::setup": [{"tag": "new", "evaluator_files": [f"{'x' * 190}/{n}" for n in range(100)]}],
        "experiment::stop": [{"experiment_id": f"{SMALL}-3"}],
        "experiment::wait": [{"experiment_id": f"{TAG}-{RUNS}", "timeout": 0}],
        "hypothesis::gate": [{"tag": VARIED, "proposal": {"statement": "D1 matters " * 40}}],
        "hypothesis::graph_summary": [{"tag": VARIED, "include_graph": True}],
        "hypothesis::learn": [{"tag": VARIED, "experiment_ids": [f"{VARIED}-102"]}],
        "hypothesis::list": [{"tag": VARIED, "archived": True}],
        "hypothesis::propose": [{"tag": VARIED, "proposal": {"statement": "D1 matters most " * 30}}],
        "gpu::built": [
            {**LENT, "tree_id": "t1", "patch_base64": b64encode(longest_patch(6).encode()).decode()}
        ],
        "gpu::get": [{"gpu_id": FAR}],
        "gpu::health": [{"gpu_id": "host:gpu1"}],
        "gpu::history": [{"gpu_id": FAR, "hours": 24}],
        "gpu::renew": [{**LENT, "metric": 1.0, "progress": 0.2, "log": "x" * 65536}],
        "gpu::stopped": [LENT],
        "gpu::train": [{"experiment_id": f"{SMALL}-4"}],
        "invocation::get": [{"invocation_id": f"{SMALL}-7.1"}],
        "pipeline::adopt": [{"tag": VARIED, "spec_id": "none"}],
        "pipeline::draft": [{"tag": VARIED, "number": 1}],
        "pool::acquire": [{"experiment_id": f"{SMALL}-6"}],
        "pool::deregister": [{"gpu_id": "host:gpu2"}],
        "pool::drain": [{"gpu_id": "host:gpu3"}],
        "pool::give_back": [{"gpu_id": "host:gpu6", "fence": 1, "reason": "it is hot"}],
        "pool::next": [{"gpu_id": FAR, "timeout": 0}],
        "pool::heartbeat": [{"gpu_id": "host:gpu4", "health": {f"x{n}": "y" * 1000 for n in range(24)}}],
        "pool::release": [{"gpu_id": "host:gpu5", "experiment_id": f"{TAG}-{RUNS}", "fence": 1}],
        "report::diff": [{"experiment_a": "code-1", "experiment_b": "code-2"}],
        "report::progress": [{"tag": TAG, "format": "svg"}, {"tag": TAG, "format": "png"}],
        "report::runs": [
            {"tag": TAG},
            {"tag": TAG, "constants": True},
            {"tag": VARIED, "constants": True},
            {"tag": TAG, "ids": [f"{TAG}-{n}" for n in range(1, 501)]},
        ],
        "trust::certify": [{"experiment_id": f"{TAG}-8", "against": f"{TAG}-1"}],
        "trust::transfer": [{"experiment_id": f"{TAG}-8", "against": f"{TAG}-1"}],
        "run::stop": [{"run_id": f"{VARIED}-2", "reason": LONGEST[:1000]}],
        "run::tick": [{"id": f"{VARIED}-3", "p": 0.2, "m": 1.0}],
        "swarm::preview": [{"worker_id": "w1"}],
        "swarm::result": [{**result_of(3, f"{VARIED}-4"), "val_bpb": None, "error": "api-key-" * 8192}],
        "trace::configure": [{"tag": FOREST, "priorities": {f"{FOREST}-t{n}": 2.0 for n in range(1, 101)}}],
        "trace::context": [
            {
                "tag": tag,
                "parent_ids": [f"{tag}-{number}"],
                "search_type": "all",
                "max_keep": 500,
                "max_failed": 500,
                "siblings": "always",
            }
            for tag, number in ((TAG, RUNS), (FOREST, 150))
        ],
        "trace::list": [{"tag": TAG, "draw": True}, {"tag": FOREST, "draw": True}],
        "trace::close": [{"tag": FOREST, "trace_id": f"{FOREST}-t50"}],
        "trace::merge": [{"tag": FOREST, "sources": [f"{FOREST}-t{n}" for n in range(1, 17)]}],
        "trace::release": [{"selection_id": f"{FOREST}-s201"}],
        "trace::renew": [{"selection_id": f"{FOREST}-s202"}],
        "trace::select": [{"tag": FOREST, "include_context": True}],
    }


BUSIEST: Mapping[str, Sequence[str]] = {
    name: tags
    for tags, names in (
        (
            (VARIED,),
            """dimension::list dimension::proposals dimension::follow_trials dimension::draft dimension::measure
            hypothesis::bootstrap hypothesis::graph hypothesis::draft hypothesis::tell journal::checkpoint
            pipeline::follow program::refresh run::active run::stats swarm::health swarm::leaderboard
            swarm::populations swarm::refill swarm::workers""",
        ),
        ((TAG, FOREST), "report::brief report::summary search::suggest_direction trace::audit"),
        ((TAG, VARIED), "program::write report::agents"),
        ((TAG, FOREST, CODE), "report::night"),
    )
    for name in names.split()
}
"""Tags of the longest requests that name nothing else."""


def worst_of(declared: Function[Any, Any]) -> Sequence[Mapping[str, Any]]:
    """The longest requests of a function, each for as much as may be asked for."""
    found = worst().get(declared.name) or [{"tag": tag} for tag in BUSIEST.get(declared.name, ())]
    limit = schema_of(declared.request, "request").get("properties", {}).get("limit", {})
    most = {"limit": limit["maximum"]} if "maximum" in limit else {}
    return [{**body, **most} for body in found or [sample(declared)]]


REFUSED: Mapping[str, int] = {
    "dimension::freeze_irrelevant": 404,
    "gpu::stopped": 409,
    "hypothesis::get": 404,
    "hypothesis::history": 404,
    "token::enroll": 401,
    "token::revoke": 404,
    "trace::reopen": 404,
    "trust::certify": 409,
    "trust::transfer": 409,
    "webhook::add": 422,
    "webhook::remove": 404,
    "webhook::test": 404,
}
"""Functions whose request names what is not there or was never measured."""


def test_every_worst_request_is_one_of_a_function() -> None:
    assert worst().keys() | BUSIEST.keys() <= set(table())


@pytest.mark.long
@pytest.mark.parametrize("declared", table().values(), ids=table().keys())
async def test_no_function_holds_the_event_loop(web: Web, declared: Function[Any, Any]) -> None:
    async with web.client() as http, web.unheld():
        for body in worst_of(declared):
            healthy = asyncio.create_task(stays_healthy(http))
            answer = await sent(http, declared, body)
            healthy.cancel()
            allowed = (200, 202, 204) if declared.name not in REFUSED else (REFUSED[declared.name],)
            assert answer.status_code in allowed, answer.text


async def sent(
    http: httpx.AsyncClient, declared: Function[Any, Any], body: Mapping[str, Any]
) -> httpx.Response:
    """The answer to a request at the function's first route."""
    door = next(declared.doors)
    path = door.path.format(**body)
    rest = {name: value for name, value in body.items() if f"{{{name}}}" not in door.path}
    if door.method == "POST":
        return await http.post(path, content=json.dumps(rest))
    return await http.request(door.method, path, params=rest)


async def stays_healthy(http: httpx.AsyncClient) -> None:
    """Others are answered meanwhile; asked seldom, since the loop itself tells how long it was held."""
    while True:
        assert (await http.get("/healthz")).status_code == 200
        await asyncio.sleep(0.1)


BODIES: Mapping[str, bytes] = {
    "many lists": b'{"config_delta": [' + b"[]," * (2 * MIB - 20) + b"0]}",
    "many objects": b'{"config_delta": [' + b'{"a":{}},' * (MIB * 6 // 9 - 20) + b"0]}",
    "many numbers": b'{"config_delta": [' + b"0," * (3 * MIB - 20) + b"0]}",
    "as many values as may be": json.dumps(
        {"config_delta": {f"K{n}": [0] * 990 for n in range(100)}}
    ).encode(),
    "many long fractions": b'{"config_delta": [' + b"0.12345678901234567890," * (MIB * 6 // 23 - 20) + b"0]}",
    "many names": b"{" + b",".join(b'"k%d":0' % n for n in range(500_000)) + b"}",
    "many unknown names": b"{" + b",".join(b'"k%d":0' % n for n in range(9000)) + b"}",
    "a long number": b'{"seed": ' + b"9" * (6 * MIB - 20) + b"}",
    "deep": b'{"config_delta": ' + b"[" * (3 * MIB) + b"]" * (3 * MIB - 20) + b"}",
    "escapes": b'{"diff": "' + b"\\u0041" * (MIB - 10) + b'"}',
    "quotes": b'{"diff": "' + b'\\"' * (3 * MIB - 10) + b'"}',
    "empty texts": b'{"parent_ids": [' + b'"",' * (2 * MIB - 10) + b'""]}',
    "wrong names": b'{"parent_ids": [' + b'"mar11-",' * 9000 + b'""]}',
}


@pytest.mark.long
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_no_body_holds_the_event_loop(web: Web, body: bytes) -> None:
    call = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "submit", "arguments": '
    lists = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with web.client() as http:
        assert (await http.post("/mcp", json=lists, headers=ACCEPT)).status_code == 200  # what it imports

        async with web.unheld():
            plain = await http.post("/api/experiment/register", content=body)
            by_mcp = await http.post("/mcp", content=call + body + b"}}", headers=ACCEPT)

    assert plain.status_code in (400, 422), plain.text
    assert by_mcp.status_code in (400, 413, 422) or by_mcp.json()["result"]["isError"], by_mcp.text[:1000]


TOOLS = {
    f"{name} {what}": (name, what, function)
    for name, choices in NAMES.items()
    for what, function in choices.items()
}


@pytest.mark.long
@pytest.mark.parametrize(("tool", "what", "function"), TOOLS.values(), ids=TOOLS.keys())
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_no_call_over_mcp_holds_the_event_loop(
    web: Web, tool: str, what: str, function: str, mode: str
) -> None:
    chosen, reads = {WHAT: what} if len(NAMES[tool]) > 1 else {}, not table()[function].writes
    async with (
        web.client() as http,
        httpx2.AsyncClient(headers=dict(http.headers), timeout=120) as sender,
        Client(streamable_http_client(f"{web.url}/mcp", http_client=sender), mode=mode) as client,
    ):
        await client.list_tools()
        async with web.unheld():
            for body in worst_of(table()[function]):
                healthy = asyncio.create_task(stays_healthy(http))
                fresh = {"tag": f"new-{uuid.uuid4().hex[:8]}"} if function == "experiment::setup" else {}
                answer = await client.call_tool(tool, {**body, **chosen, **fresh})
                healthy.cancel()
                assert answer.content
                assert not (answer.is_error and reads), answer.content


HEADS: Mapping[str, tuple[str, Sequence[tuple[str, str]]]] = {
    "a cookie of backslashes": ("/api/report/tags", [("cookie", 'a="' + "\\" * 60_000 + '"')]),
    "a cookie of quotes": ("/api/report/tags", [("cookie", 'a="' + '\\"' * 30_000 + '"')]),
    "many cookies": ("/api/report/tags", [("cookie", "nightjar_session=b;" * 3000)]),
    "a long token": ("/api/report/tags", [("authorization", "Bearer nj_" + "a" * 60_000)]),
    "many headers": ("/api/report/tags", [(f"x{n}", "1") for n in range(6000)]),
    "a long origin": ("/api/report/tags", [("origin", "http://" + "a:" * 30_000)]),
    "many fields": ("/api/report/tags?" + "a&" * 30_000, []),
    "many ranges": ("/static/style.css", [("range", "bytes=" + "0-1," * 15_000 + "0-1")]),
    "many far ranges": (
        "/static/style.css",
        [("range", "bytes=" + ",".join(f"{2 * n}-{2 * n}" for n in range(5000)))],
    ),
    "many kinds": ("/metrics", [("accept", "a/b;q=0.5," * 6000)]),
}


@pytest.mark.long
@pytest.mark.parametrize(("path", "headers"), HEADS.values(), ids=HEADS.keys())
async def test_no_head_of_a_stranger_holds_the_event_loop(
    web: Web, path: str, headers: Sequence[tuple[str, str]]
) -> None:
    async with httpx.AsyncClient(base_url=web.url, timeout=120) as stranger, web.unheld():
        answer = await stranger.get(path, headers=[*headers])
        assert answer.status_code < 500, answer.text


@pytest.mark.long
@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/metrics", "/", "/readyz"])
async def test_no_fixed_route_holds_the_event_loop(web: Web, path: str) -> None:
    async with web.client() as http, web.unheld():
        assert (await http.get(path)).status_code == 200
