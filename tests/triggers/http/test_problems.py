"""Every deliberate error has its status; what only asks changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from functions.kernel.table import table
from state.errors import Exhausted, NightjarError, NotFound
from tests.labs import add_gpu, asked, crashed, dump, idea, open_tag, registered, running, told, tried
from triggers.http.bodies import too_large
from triggers.http.problems import problem_document, problem_response
from triggers.http.status import STATUS


def tree(root: type[NightjarError]) -> Iterator[type[NightjarError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from tree(kind)


def test_every_error_of_the_tree_has_its_status() -> None:
    # a worker's own errors (a checkout that cannot be built) end as an experiment's crash, never at a door
    told = {kind for kind in tree(NightjarError) if kind.__module__ == "state.errors"}

    assert told == set(STATUS)


@pytest.mark.parametrize("kind", STATUS, ids=[kind.__name__ for kind in STATUS])
def test_an_error_becomes_a_problem_document(kind: type[NightjarError]) -> None:
    response = problem_response(
        kind("what", hint="do this", retry_after=1.2, fields={"title": "no", "more": 1})
    )

    assert response.status_code == STATUS[kind]
    assert response.media_type == "application/problem+json"
    assert response.headers["retry-after"] == "2"
    body = bytes(response.body)
    assert b'"hint": "do this"' in body
    assert b'"more": 1' in body
    assert b'"no"' not in body


def test_a_problem_quotes_no_token() -> None:
    text = "nj_234567abcd_" + "-_aA" * 10 + "xyz"

    response = problem_response(NotFound(f"there is no token {text!r}", fields={text: [text]}))

    assert text[-43:] not in bytes(response.body).decode()
    assert b"there is no token '[redacted]'" in bytes(response.body)


def test_what_is_busy_says_when_to_come_back() -> None:
    assert STATUS[Exhausted] == 503


def test_a_problem_never_holds_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        problem_document(422, "t", "d", fields={"value": float("nan")})


GETS = sorted(
    door.path
    for declared in table().values()
    for door in declared.doors
    if door.method == "GET" and not declared.writes
)
FIXED = ["/", "/docs", "/openapi.json", "/healthz", "/readyz"]


async def test_asking_changes_nothing(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client)
    await tried(client, 1.0)
    await tried(client, 1.001)
    await crashed(client)
    await add_gpu(client)
    e = await running(client, process)
    await registered(client)
    await told(client, "/api/experiment/submit", **idea())
    await told(client, "/api/pool/heartbeat", gpu_id="host:gpu0", health={"temperature_c": 99.0})
    await told(client, "/register", worker_id="w1", gpu_type="H100", baseline_bpb=1.0)
    await asked(client, "/next_config/w1")
    claim = {"statement": "wider layers learn faster"}
    proposed = await told(client, "/api/hypothesis/propose", tag="swarm", proposal=claim)
    names = {
        "{worker_id}": "w1",
        "{hypothesis_id}": proposed["hypothesis_id"],
        "{experiment_id}": e.experiment_id,
        "{gpu_id}": "host:gpu0",
        "{invocation_id}": f"{e.experiment_id}.1",
        "{format}": "svg",
        "{part}": "traces",
    }
    before = await dump(process.lab)

    for path in FIXED + GETS:
        url = path
        for parameter, value in names.items():
            url = url.replace(parameter, value)
        query = (
            {"tag": "mar11"} if "progress" in url else {"timeout": "0.05"} if url.endswith("/wait") else {}
        )
        for method in ("GET", "HEAD"):
            response = await client.request(method, url, params=query)
            assert response.status_code in (200, 204, 307), (method, url, response.text)

    assert await dump(process.lab) == before


async def test_reads_by_post_change_nothing_either(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client)
    await tried(client, 1.0)
    await tried(client, 1.001)
    await add_gpu(client)
    await told(client, "/register", worker_id="w1", gpu_type="H100", baseline_bpb=1.0)
    claim = {"statement": "wider layers learn faster"}
    proposed = await told(client, "/api/hypothesis/propose", tag="mar11", proposal=claim)
    bodies = {
        "tag": "mar11",
        "experiment_a": "mar11-1",
        "experiment_b": "mar11-2",
        "gpu_id": "host:gpu0",
        "worker_id": "w1",
        "hypothesis_id": proposed["hypothesis_id"],
        "proposal": {"statement": "a larger batch is slower"},
    }
    before = await dump(process.lab)

    for name, declared in table().items():
        for door in declared.doors:
            if declared.writes or door.method != "POST":
                continue
            body = {f: v for f, v in bodies.items() if f in declared.request.model_fields}
            path = door.path.replace("{worker_id}", "w1")
            response = await client.post(path, json=body, headers={"idempotency-key": "k"})
            assert response.status_code == 200, (name, response.text)

    assert await dump(process.lab) == before


@pytest.mark.parametrize(("limit", "size"), [(100, "100 bytes"), (8192, "8,192 bytes"), (4 << 20, "4 MiB")])
def test_a_body_that_is_too_large_learns_the_limit_in_readable_words(limit: int, size: str) -> None:
    assert too_large(limit).detail == f"the body is over {size}"
