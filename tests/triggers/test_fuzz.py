"""Whatever is sent to any function is answered as /openapi.json says, in time and never with a server error."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from functions.kernel.process.lifecycle import opened
from functions.kernel.table import table
from state.embedded import EmbeddedRedis
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import add_gpu, crashed, idea, open_tag, registered, told, tried
from triggers.openapi import openapi

if TYPE_CHECKING:  # it takes half a second, and each worker collects this file
    from schemathesis.generation.case import Case
    from schemathesis.schemas import APIOperation

EXAMPLES = pytest.mark.parametrize("most", [2, pytest.param(40, marks=pytest.mark.long)])
DRAWN = 2
"""Most of what draws a picture: half a second each."""
BASE = "http://127.0.0.1:3111"
ANSWER_S = 60.0
"""Far more than any answer takes: what takes longer hangs."""


def examples(count: int) -> settings:
    """So many, the same in every run."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )


BRIEF = {"timeout": 0.01, "wait": 0.01}
"""Fields that make a call wait, and how long they may here."""
TUPLES = {"experiment_get"}
KNOWN: dict[str, list[str]] = {
    "tag": ["mar11", "none"],
    "experiment_id": ["mar11-1", "mar11-2", "mar11-5", "mar11-99"],
    "experiment_a": ["mar11-1"],
    "experiment_b": ["mar11-2"],
    "gpu_id": ["host:gpu0", "host:gpu9"],
    "parent_ids": ["mar11-1"],
}
"""Names of things that are there, or nearly: by chance alone hardly a request would find any."""


class Door:
    """The web application of one small lab, asked from outside any event loop."""

    def __init__(self, runner: asyncio.Runner, http: httpx.AsyncClient) -> None:
        self._runner = runner
        self._http = http

    def send(self, prepared: requests.PreparedRequest) -> httpx.Response:
        """The answer; fails where none comes."""
        content = prepared.body.encode() if isinstance(prepared.body, str) else prepared.body
        assert content is None or isinstance(content, bytes)
        headers = {name: str(value) for name, value in prepared.headers.items()}
        request = self._http.build_request(
            str(prepared.method), str(prepared.url), content=content, headers=headers
        )
        return self._runner.run(asyncio.wait_for(self._http.send(request), ANSWER_S))


@pytest.fixture(scope="module")
def door(redis_server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    lab = Settings.model_validate(
        {
            "lab": f"t{uuid.uuid4().hex[:12]}",
            "redis_url": redis_server.url,
            "data": tmp_path_factory.mktemp("fuzz"),
            "rate_per_s": 1e6,
        }
    )
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def open_lab() -> httpx.AsyncClient:
            process = await stack.enter_async_context(opened("web", lab))
            http = await stack.enter_async_context(http_client(process))
            await a_small_lab(http)
            # what is drawn issues tokens too, and from the first on nobody is let in without one
            mine = await process.tokens.issue(name="me", role="operator", issued_by="local")
            http.headers["authorization"] = f"Bearer {mine.text}"
            return http

        yield Door(runner, runner.run(open_lab()))
        runner.run(stack.aclose())


async def a_small_lab(http: httpx.AsyncClient) -> None:
    """Something to find: results, a crash, a GPU, what waits and what is open."""
    await open_tag(http)
    await add_gpu(http)
    await tried(http, 1.0, diff="+x\n")
    await tried(http, 1.001)
    await crashed(http)
    await told(http, "/api/experiment/submit", **idea())
    await registered(http)


@cache
def operations() -> dict[str, APIOperation[Any, Any, Any, Any]]:
    """The document's operations by their ids, read only where requests are sent."""
    import schemathesis
    from schemathesis.core.result import Ok

    schema = schemathesis.openapi.from_dict(openapi(dict(table())))
    read = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    return {operation.definition.raw["operationId"]: operation for operation in read}


IDS = {
    name.replace("::", "_") + (f"_{nth}" if nth > 1 else ""): bool(
        declared.request.model_fields or door.method == "POST"
    )
    for name, declared in table().items()
    for nth, door in enumerate(declared.doors, 1)
}
"""What the document tells of, by its ids: whether anything of a request can be wrong."""
LEFT_OUT = {"token_rotate"}
"""It would end the token that all others are sent with."""
CASES = [(name, "positive") for name in sorted(IDS.keys() - LEFT_OUT)]
CASES += [(name, "negative") for name, _ in CASES if IDS[name]]


def at_known_things(case: Case[Any], draw: Any) -> None:
    """Point the request at things that are there, and let it wait but briefly."""
    if case.operation.definition.raw["operationId"] == "experiment_wait":
        case.query = {"timeout": 0.01, **(case.query or {})}  # its default is long
    elif case.operation.definition.raw["operationId"] == "pool_next" and isinstance(case.body, dict):
        case.body.setdefault("timeout", 0.01)
    body: Any = case.body
    for part in (case.path_parameters, case.query, body if isinstance(body, dict) else {}):
        for name, value in part.items() if isinstance(part, dict) else ():
            if name in BRIEF and isinstance(value, int | float) and not isinstance(value, bool):
                part[name] = min(value, BRIEF[name])
            elif name in KNOWN and isinstance(value, str):
                part[name] = draw(st.one_of(st.just(value), st.sampled_from(KNOWN[name])))


@EXAMPLES
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_a_function_answers_anything_as_documented(door: Door, name: str, mode: str, most: int) -> None:
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi import checks as conform

    operation = operations()[name]

    @examples(DRAWN if name == "report_progress" else most)
    @given(case=operation.as_strategy(GenerationMode(mode)), data=st.data())
    def ask(case: Case[Any], data: st.DataObject) -> None:
        at_known_things(case, data.draw)
        sent = case.as_transport_kwargs(base_url=BASE)
        prepared = requests.Request(**{k: v for k, v in sent.items() if k != "cookies"}).prepare()

        answer = door.send(prepared)

        assert answer.status_code < 500, (prepared.url, prepared.body, answer.text)
        # a fixed-length list in an answer (prefixItems) is beyond its reading of schemas: our own models check that
        checks = [conform.status_code_conformance, conform.content_type_conformance]
        case.validate_response(
            answer, checks=checks + [conform.response_schema_conformance] * (name not in TUPLES)
        )
        if answer.status_code >= 400:
            assert json.loads(answer.content)["hint"], answer.text

    ask()
