"""Bad input gets a problem document with a hint, and changes nothing."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any, Protocol

import httpx
import pytest

from functions.kernel.contract import MIB
from functions.kernel.process.lifecycle import Process
from tests.labs import add_gpu, asked, curl, dump, idea, open_tag, problem, refused, registered, told, tried

COMPLETE = "/api/experiment/complete"
HEARTBEAT = "/api/pool/heartbeat"
HISTORY = "/api/experiment/history"
POLICY = "/api/search/set-policy"
REGISTER = "/api/experiment/register"
SETUP = "/api/experiment/setup"


class Refuse(Protocol):
    """Sends a request that has to be refused without a trace, and answers its problem."""

    async def __call__(self, path: str, body: Any, status: int = 422, **headers: str) -> dict[str, Any]: ...


@pytest.fixture
async def refuse(client: httpx.AsyncClient, process: Process) -> Refuse:
    """In a lab where mar11-1 is kept, mar11-2 registered and one GPU idle."""
    await open_tag(client)
    await tried(client, 1.0)
    await registered(client)
    await add_gpu(client)

    async def unchanged(path: str, body: Any, status: int = 422, **headers: str) -> dict[str, Any]:
        before = await dump(process.lab)

        answer = await curl(client, path, body, **headers)

        assert answer.status_code == status, (path, body, answer.text)
        document = problem(answer, status)
        assert await dump(process.lab) == before, (path, body)
        return document

    return unchanged


NO_JSON: list[str | bytes] = [
    *("{", "{'tag': 'mar11'}", '{"tag": mar11}', '{"tag": "mar11",}', "tag=mar11", '{"tag": "\x01"}'),
    *("\ufeff{}", b'{"tag": "\xff\xfe"}', '{"tag": "a\x00b"}', '{"tag": 1' + "0" * 5000 + "}"),
    *(
        '{"tag": "\\ud800"}',
        '{"tag": "\\udc00\\ud800"}',
    ),  # half of a surrogate pair, and the wrong half first
]


@pytest.mark.parametrize(("field", "hint"), [("val_bpb", "experiment/crash"), ("peak_vram_mb", "be finite")])
async def test_a_result_that_is_no_finite_number_is_refused_and_only_the_metric_s_is_a_crash(
    refuse: Refuse, field: str, hint: str
) -> None:
    for value in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999"):
        value_of = "" if field == "val_bpb" else '"val_bpb": 1.0, '
        document = await refuse(COMPLETE, f'{{"experiment_id": "mar11-2", {value_of}"{field}": {value}}}')
        assert field in document["detail"]
        assert hint in document["hint"]


NO_METRICS: list[Any] = [
    *([1.0], {"loss": "low"}, {"x" * 101: 1.0}, {"": 1.0}, {"a\u202eb": 1.0}),
    *({f"m{n}": 1.0 for n in range(201)}, {"loss": math.nan}, {"loss": 10**400}),
]
WRONG: list[tuple[str, Any]] = [
    *(("val_bpb", value) for value in ("0.99", True, None, [0.99], 0, -0.0, -1.0, 5e300, 10**400)),
    *(("peak_vram_mb", value) for value in ("1", -1.0, 10**400)),
    *(("metrics", value) for value in NO_METRICS),
    *(("attempt", value) for value in (1.5, "1")),
    *(("experiment_id", 2), ("training_seconds", 1e300), ("num_steps", {}), ("fence", -1)),
    *(("budget_seconds", 0), ("gpu_class", "x" * 101), ("no_such_field", 1)),
]


async def test_a_value_of_the_wrong_kind_is_named(refuse: Refuse) -> None:
    for field, value in WRONG:
        document = await refuse(COMPLETE, {"experiment_id": "mar11-2", "val_bpb": 0.99} | {field: value})
        assert field in document["detail"], (field, value)


TAGS = ["", "../mar11", "a/b", "..", ".hidden", "-rf", "mar11\n", " mar11", "mar 11", "x" * 41, "märz", "a*"]
IDS = ["../etc", "mar11-1\n", "", "a" * 97, "mar11:1", "*"]
HUGE = 10**30
NO_IDEAS: list[dict[str, Any]] = [
    *({"hypothesis": ""}, {"hypothesis": "x" * 4001}, {"category": "magic"}, {"config_delta": [1]}),
    *({"parent_ids": ["mar11-1"] * 17}, {"parent_ids": "mar11-1"}, {"seed": 1.5}, {"seed": "1"}),
    *({"parent_id": "mar11-1", "parent_ids": ["mar11-2"]}, {"diff": "x" * (4 * MIB + 1)}),
    {"diff": "ü" * (2 * MIB + 1)},
]
NO_HEALTH: list[Any] = [
    *({"temperature_c": 10**400}, {"temperature_c": "hot"}, {"ecc": HUGE}, {"ecc": "many"}, {"ecc": -1}),
    *({"throttle": 5}, {"x": {"nested": 1}}, {"x": [1]}, {f"x{n}": 1 for n in range(33)}, [1]),
]
REFUSED: list[tuple[str, Any]] = [
    *((SETUP, body) for body in ("[]", "1", "null", '"mar11"', "true", '[{"tag": "mar11"}]')),
    *((SETUP, {"tag": tag}) for tag in (*TAGS, "{lab}", "a:b")),
    *((REGISTER, idea(tag)) for tag in TAGS),
    *((HISTORY, {"tag": tag}) for tag in TAGS),
    *((COMPLETE, {"experiment_id": wrong, "val_bpb": 1.0}) for wrong in IDS),
    *((REGISTER, idea(**{field: wrong})) for field in ("parent_id", "commit_sha") for wrong in IDS),
    *((REGISTER, idea(**wrong)) for wrong in NO_IDEAS),
    ("/api/experiment/submit", idea(parent_id="mar11-1", parent_ids=["mar11-2"])),
    (COMPLETE, {"experiment_id": "mar11-2", "val_bpb": 10**200}),
    (HISTORY, {"tag": "mar11", "limit": HUGE}),
    ("/api/experiment/near-misses", {"tag": "mar11", "limit": HUGE}),
    ("/api/search/set-strategy", {"tag": "mar11", "mode": "exploit", "reason": "r", "pin_for": HUGE}),
    ("/api/pool/acquire", {"experiment_id": "mar11-2", "wait": HUGE}),
    ("/api/pool/release", {"gpu_id": "host:gpu0", "experiment_id": "mar11-2", "fence": HUGE, "x": 1}),
    ("/api/experiment/submit", idea(priority=HUGE)),
    *((HEARTBEAT, {"gpu_id": "host:gpu0", "health": health}) for health in NO_HEALTH),
    *((path, {"tag": tag, "policy": {"no_such": 1}}) for path, tag in ((POLICY, "mar11"), (SETUP, "apr1"))),
    *((POLICY, {"tag": "mar11", "policy": {name: 1}}) for name in ("a" + ".a" * 100_000, "", ".")),
]
"""Each on its own, by path and body. `test_policies.py` has the values that a policy may not have."""


NUL = (
    (REGISTER, idea(hypothesis="a\0b")),
    (REGISTER, idea(diff_summary="a\0b")),
    (REGISTER, idea(diff="+\0\n")),
    (REGISTER, idea(config_delta={"a\0b": 1})),
    (REGISTER, idea(config_delta={"LR": ["\0"]})),
    ("/api/experiment/crash", {"experiment_id": "mar11-2", "error": "\0"}),
    ("/api/experiment/setup", {"tag": "apr1", "branch": "a\0"}),
    ("/api/pool/register", {"gpu_id": "g", "gpu_index": 0, "gpu_name": "\0", "vram_mb": 1}),
)
GONE_ON: list[tuple[str, Any]] = [
    *((COMPLETE, {"experiment_id": "mar11-2", "val_bpb": 1.0, name: HUGE}) for name in ("attempt", "fence")),
    (POLICY, {"tag": "mar11", "policy": {}, "expected_version": HUGE}),
]
KINDS = ("multipart/form-data; boundary=x", "application/xml", "application/octet-stream", "text/html")
UNREAD: list[dict[str, str]] = [
    *({"content_type": kind} for kind in KINDS),
    *({"content_encoding": encoding} for encoding in ("gzip", "br", "deflate", "identity, gzip")),
]


async def test_what_is_no_json_out_of_its_form_or_its_limits_is_refused(refuse: Refuse) -> None:
    for text in NO_JSON:
        await refuse(SETUP, text.encode() if isinstance(text, str) else text, 400)
    for path, body in REFUSED:
        await refuse(path, body)
    for path, body in GONE_ON:
        await refuse(path, body, 409)
    for headers in UNREAD:
        await refuse(SETUP, '{"tag": "mar11"}', 415, **headers)
    for path, body in NUL:
        assert "NUL" in (await refuse(path, body))["detail"]


async def test_a_path_that_is_no_plain_id_is_refused(client: httpx.AsyncClient) -> None:
    for path in ("%2e%2e", "..%2fetc", "mar11-1%0a", "%00", "%ff", "a" * 97, "mar11-1%20"):
        for url in (f"/api/experiment/{path}", f"/api/experiment/{path}/wait", f"/api/gpu/{path}/health"):
            response = await client.get(url)
            problem(response)
            assert response.status_code in (404, 422)


async def test_constants_of_64_kilobytes_are_taken_and_longer_ones_are_not(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    taken = {"WIDTHS": "x" * (64 * 1024 - len('{"WIDTHS":""}'))}

    await registered(client, config_delta=taken)
    longer = idea(config_delta={"WIDTHS": taken["WIDTHS"] + "x"})
    detail = (await refused(client, 422, REGISTER, **longer))["detail"]

    assert "config_delta" in detail
    assert "change train.py instead" in detail


async def test_other_text_and_huge_numbers_in_harmless_places_come_back_as_they_were_sent(
    client: httpx.AsyncClient,
) -> None:
    await open_tag(client)

    for text in ("ünïcödé 日本語", '"quotes" \\ and \t tabs\nand lines', "</script>{{7*7}}%s${x}"):
        constants = {"A": [text], "N": HUGE}
        name = await registered(client, hypothesis=text, diff=text, config_delta=constants, seed=HUGE)

        shown = await asked(client, f"/api/experiment/{name}")
        e = shown["experiment"]
        assert e["hypothesis"] == shown["diff"] == text
        assert (e["config_delta"], e["seed"]) == (constants, HUGE)
    page = await told(client, "/api/experiment/history", tag="mar11", cursor=HUGE)
    assert page["total"] == 3
    problem(await client.get(f"/api/report/tags?offset={HUGE}"), 422)
    problem(await client.get(f"/api/experiment/{name}/wait?timeout=50.1"), 422)


async def test_a_health_sample_may_carry_further_values(client: httpx.AsyncClient) -> None:
    await add_gpu(client)
    health = {"temperature_c": 50, "fan": 0.5, "p": None}
    await told(client, "/api/pool/heartbeat", gpu_id="host:gpu0", health=health)
    worker = (await asked(client, "/api/pool/list"))["workers"][0]
    assert worker["health"] == {"temperature_c": 50.0, "fan": 0.5}


@pytest.mark.parametrize(("path", "size"), [(SETUP, 2 * MIB), (REGISTER, 7 * MIB)])
async def test_a_body_is_too_large_whether_announced_or_not(
    client: httpx.AsyncClient, process: Process, path: str, size: int
) -> None:
    before = await dump(process.lab)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(size // 65536):
            yield b" " * 65536

    announced = await client.post(path, content=b" " * size)
    chunked = await client.post(path, content=chunks())

    assert "MiB" in problem(announced, 413)["detail"]
    problem(chunked, 413)
    assert await dump(process.lab) == before


async def test_unknown_routes_and_methods_say_where_the_routes_are_listed(client: httpx.AsyncClient) -> None:
    unknown = [("GET", "/api/no/such", 404), ("POST", "/nothing", 404), ("DELETE", REGISTER, 405)]
    for method, path, status in (*unknown, ("PUT", REGISTER, 405), ("POST", "/api/lab/status", 405)):
        assert "/docs" in problem(await client.request(method, path), status)["hint"]
