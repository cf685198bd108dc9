"""The tools as a client of MCP sees them: the function table's texts, fields, answers and refusals."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.schemas import schema_of
from functions.kernel.table import table
from state.records import ExperimentRecord
from state.settings import Settings
from tests.conftest import served_client
from tests.labs import bearer, idea, open_tag, registered, told, tried
from triggers.mcp_tools import FOR_OTHERS, NAMES, plain, tools_of

KB = 1024
CHOICES = [(tool, what) for tool, choices in tools_of(table()).items() for what in choices.choices]


@asynccontextmanager
async def speaking(http: httpx.AsyncClient, mode: str = "auto", **headers: str) -> AsyncIterator[Client]:
    """The official client at a served lab."""
    async with httpx2.AsyncClient(headers=headers, timeout=60) as sender:
        transport = streamable_http_client(f"{str(http.base_url).rstrip('/')}/mcp", http_client=sender)
        async with Client(transport, mode=mode) as client:
            yield client


@pytest.fixture
async def http(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    async with served_client(process) as found:
        yield found


def text(answer: CallToolResult) -> str:
    (part,) = answer.content
    assert isinstance(part, TextContent)
    return part.text


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """What a refused call is told."""
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error, answer
    return text(answer)


# -- what is listed


async def test_a_client_of_each_era_sees_eight_tools_with_texts_and_fields(http: httpx.AsyncClient) -> None:
    for mode in ("auto", "legacy"):
        async with speaking(http, mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}

        assert set(tools) == set(NAMES)
        assert len(tools) <= 8
        assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools.values())
        assert tools["query"].annotations is not None
        assert tools["query"].annotations.read_only_hint
        assert tools["stop"].annotations is not None
        assert tools["stop"].annotations.destructive_hint


@pytest.mark.parametrize(("name", "what"), CHOICES)
def test_a_tool_has_every_field_that_agents_send_as_the_table_has_it(name: str, what: str) -> None:
    tool = tools_of(table())[name]
    declared = tool.choices[what]
    whole = schema_of(declared.request, "request")["properties"]
    wanted = plain(schema_of(declared.request, "request"))

    assert declared.description in tool.text
    assert set(tool.schema["required"]) <= set(wanted["required"])
    assert not {"anyOf", "oneOf", "allOf"} & set(tool.schema)  # clients take no alternatives at the top
    for field in whole.keys() - wanted["properties"].keys():
        assert any(words in whole[field]["description"] for words in FOR_OTHERS), field
    for field, of in wanted["properties"].items():
        shown = tool.schema["properties"][field]
        assert of.get("description", "") in shown.get("description", ""), field
        assert shown.get("default", of.get("default")) == of.get("default"), field
        said = dict.fromkeys(("description", "default"))
        assert {**shown, **said} == {**of, **said}, field


async def test_a_token_that_only_reads_is_refused_the_rest(process: Process) -> None:
    viewer = await bearer(process, "vera", "viewer")
    async with served_client(process) as http, speaking(http, **viewer) as client:
        refused = await refusal(client, "submit", **idea())

    assert refused == (
        "Forbidden: experiment::submit needs the role agent, 'vera' is viewer\n"
        "Hint: ask an operator for a token of that role"
    )


# -- what is answered


async def test_an_answer_is_the_function_s_with_tools_for_routes(http: httpx.AsyncClient) -> None:
    async with speaking(http) as client:
        opened = await client.call_tool("brief", {"what": "setup", "tag": "mar11"})
        brief = await client.call_tool("brief", {"tag": "mar11"})
    same = await told(http, "/api/report/brief", tag="mar11")

    shown = brief.structured_content
    assert opened.structured_content["tag"]["name"] == "mar11"
    assert {**shown, "next": ""} == {n: v for n, v in same.items() if v is not None} | {"next": ""}
    assert "POST /api/search/suggest" in same["next"]
    assert "the tool suggest" in shown["next"]


async def test_an_agent_reports_what_came_of_a_run_of_its_own(http: httpx.AsyncClient) -> None:
    await open_tag(http)
    first, second = await registered(http), await registered(http)
    async with speaking(http) as client:
        kept = {"what": "complete", "experiment_id": first, "val_bpb": 0.9}
        answers = [await client.call_tool("report", kept) for _ in "12"]
        broke = {"what": "crash", "experiment_id": second, "error": "CUDA out of memory", "kind": "oom"}
        crashed = await client.call_tool("report", broke)

    said = [answer.structured_content for answer in answers]
    assert [(one["status"], one["replayed"]) for one in said] == [("keep", False), ("keep", True)]
    assert crashed.structured_content["status"] == "crash"


async def test_an_agent_reads_little_and_the_text_says_the_same_as_the_structure(
    http: httpx.AsyncClient,
) -> None:
    why = "a wider MLP leaves more room in the residual stream, and the learning rate follows it"
    await open_tag(http)
    for nth in range(20):
        if nth % 2:
            name = await registered(http, agent="ada", hypothesis=why, diff_summary=why)
            error = f"Traceback (most recent call last):\n  ...\nRuntimeError: {'mat1 and mat2 differ, ' * 9}"
            await told(http, "/api/experiment/crash", experiment_id=name, error=error)
        else:
            commit: dict[str, Any] = {"commit_sha": f"{nth:040x}", "diff": f"diff --git a/t b/t\n{nth}"}
            await tried(http, 1 / 3 - nth / 1000, agent="ada", hypothesis=why, diff_summary=why, **commit)
    async with speaking(http) as client:
        listed = (await client.list_tools()).model_dump(mode="json", by_alias=True, exclude_none=True)
        history = await client.call_tool("query", {"what": "history", "tag": "mar11", "limit": 20})
        suggested = await client.call_tool("suggest", {"tag": "mar11"})
        submitted = await client.call_tool("submit", {**idea(), "agent": "ada", "commit_sha": "ab" * 20})
        waited = await client.call_tool("wait", {"experiment_id": "mar11-19"})
        failed = await registered(http, agent="ada", hypothesis=why)
        frames = "".join(f'  File "train.py", line {nth}, in forward\n' for nth in range(99))
        long = f"exited with 1\nits files are kept\nRuntimeError: no\nTraceback:\n{frames}"
        await told(http, "/api/experiment/crash", experiment_id=failed, error=long)
        crashed = await client.call_tool("wait", {"experiment_id": failed})

    for answer in (suggested, submitted, waited, crashed, history):
        assert json.loads(text(answer)) == answer.structured_content
    assert len(json.dumps(listed["tools"])) <= 12 * KB
    for outcome in (waited, crashed):
        assert sum(len(text(answer).encode()) for answer in (suggested, submitted, outcome)) <= 1.5 * KB
    assert "RuntimeError: no" in crashed.structured_content["error"]
    assert "line 98, in forward" in crashed.structured_content["error"]
    assert len(text(history).encode()) <= 6 * KB
    shown = history.structured_content["experiments"]
    assert len(shown) == 20
    assert shown[5]["error"].startswith("RuntimeError: mat1 and mat2 differ")
    assert set().union(*shown) <= set(ExperimentRecord.FOR_AGENTS)


async def test_a_client_older_than_structured_answers_gets_the_answer_as_text(
    http: httpx.AsyncClient,
) -> None:
    await open_tag(http)
    call = {"name": "query", "arguments": {"what": "history", "tag": "mar11"}}
    answer = await http.post("/mcp", json=request("tools/call", call), headers=ACCEPT)

    result = answer.json()["result"]
    assert "structuredContent" not in result
    assert json.loads(result["content"][0]["text"]) == {
        "experiments": [],
        "gains": {},
        "total": 0,
    }


async def test_a_call_that_asks_to_wait_too_long_is_no_refusal(http: httpx.AsyncClient) -> None:
    await open_tag(http)
    experiment = await registered(http)
    async with speaking(http) as client:
        waiting = asyncio.create_task(
            client.call_tool("wait", {"experiment_id": experiment, "timeout": 600, "until": "finished"})
        )
        assert not (await asyncio.wait([waiting], timeout=0.3))[0]
        await told(http, "/api/experiment/complete", experiment_id=experiment, val_bpb=1.0)
        outcome = await waiting

    assert outcome.structured_content["status"] == "keep"
    assert "No call waits longer" not in outcome.structured_content["next"]


async def test_a_token_waits_as_often_by_mcp_as_by_http_and_no_more(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("functions.kernel.invoke.WAITS_EACH", 1)
    async with opened("web", settings) as process, served_client(process) as http:
        headers = await bearer(process, "ann", "agent")
        http.headers.update(headers)
        await open_tag(http)
        experiment = await registered(http)
        waiting = asyncio.create_task(http.get(f"/api/experiment/{experiment}/wait?timeout=50"))
        assert not (await asyncio.wait([waiting], timeout=0.3))[0]

        async with speaking(http, **headers) as client:
            refused = await refusal(client, "wait", experiment_id=experiment)
        await told(http, "/api/experiment/complete", experiment_id=experiment, val_bpb=1.0)

        assert (await waiting).status_code == 200
    assert "1 calls of 'ann' that wait" in refused
    assert refused.endswith("Try again in 5 s.")


# -- what is refused


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("brief", {}, "tag: Field required"),
        ("brief", {"tag": "mar11", "tga": "x"}, "tga: Extra inputs are not permitted"),
        (
            "query",
            {"what": "everything", "tag": "mar11"},
            "what is none of best, history, near_misses, experiment",
        ),
        ("query", {"what": ["best"], "tag": "mar11"}, "what is none of best"),
        ("report", {"experiment_id": "mar11-1", "error": "boom"}, "val_bpb: Field required"),
        ("stop", {"experiment_id": "mar11-1", "reason": "r" * 2**20}, "the body is over 1 MiB"),
        ("query", {"what": "best", "tag": "none"}, "Hint: "),
    ],
)
async def test_a_refusal_is_an_error_of_the_tool_that_says_what_to_do(
    http: httpx.AsyncClient, tool: str, arguments: Mapping[str, Any], said: str
) -> None:
    async with speaking(http) as client:
        refused = await refusal(client, tool, **arguments)

    assert said in refused
    assert "Hint: " in refused


async def test_a_fault_of_ours_is_refusedwithout_its_text(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("what nobody else should read")

    async with served_client(process) as http:
        await open_tag(http)
        monkeypatch.setattr(process.invoker, "call", broken)
        for mode in ("auto", "legacy"):
            async with speaking(http, mode) as client:
                with pytest.raises(MCPError, match="brief failed: a fault of Nightjar's own") as refused:
                    await client.call_tool("brief", {"tag": "mar11"})
            assert "nobody else" not in str(refused.value)


ACCEPT = {"accept": "application/json, text/event-stream"}


def request(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One request of JSON-RPC."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params})}


CALL = request("tools/call", {"name": "brief", "arguments": {"tag": "mar11"}})


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b"{", {}),
        (422, b"[]", {}),
        (422, json.dumps(CALL).replace("mar11", "\\u0000").encode(), {}),
        (422, json.dumps(CALL).replace('"mar11"', "NaN").encode(), {}),
        (413, b" " * (6 * 2**20 + 1), {}),
        (415, json.dumps(CALL).encode(), {"content-type": "image/png"}),
        (401, json.dumps(CALL).encode(), {"authorization": "Bearer nj_aaaaaaaaaa_" + "A" * 43}),
        (401, json.dumps(CALL).encode(), {"x-forwarded-for": "192.0.2.1"}),
    ],
)
async def test_what_http_refuses_mcp_refuses_with_a_message(
    local: httpx.AsyncClient, status: int, body: bytes, headers: Mapping[str, str]
) -> None:
    answer = await local.post(
        "/mcp", content=body, headers={**ACCEPT, "content-type": "application/json", **headers}
    )

    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["data"]["status"] == status
    assert error["message"].endswith(f"({error['data']['hint']})")


# -- what it costs others


def test_a_web_process_imports_the_sdk_with_the_first_request_of_mcp_and_nobody_else_does() -> None:
    program = "import sys, triggers.web, triggers.cli.__main__, workers.gpu; sys.exit('mcp' in sys.modules)"

    assert subprocess.run([sys.executable, "-P", "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(("name", "what"), CHOICES)
def test_what_agents_use_of_an_answer_is_a_field_of_it(name: str, what: str) -> None:
    declared = tools_of(table())[name].choices[what]
    used = getattr(declared.response, "FOR_AGENTS", ())
    assert set(used) <= declared.response.model_fields.keys()
