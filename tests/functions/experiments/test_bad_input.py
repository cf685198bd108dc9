"""Bad input gets a problem document with a hint, and changes nothing."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "{'tag': 'mar11'}",
        '{"tag": mar11}',
        '{"tag": "mar11",}',
        "tag=mar11",
        '{"tag": "\x01"}',
        b'{"tag": "\xff\xfe"}',
        '{"tag": "\\ud800"}',  # half of a surrogate pair
        '{"tag": "\\udc00\\ud800"}',
        '{"tag": "a\x00b"}',
        '{"tag": 1' + "0" * 5000 + "}",
        "\ufeff{}",
    ],
    ids=range(12),
)
async def test_what_is_no_json_is_malformed(refuse: Refuse, body: str | bytes) -> None:
    await refuse(SETUP, body.encode() if isinstance(body, str) else body, 400)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 400])
@pytest.mark.parametrize("field", ["val_bpb", "peak_vram_mb", "metrics"])
async def test_a_result_that_is_no_finite_number_is_refused(refuse: Refuse, field: str, value: str) -> None:
    shown = value if field != "metrics" else f'{{"loss": {value}}}'
    value_of = "" if field == "val_bpb" else '"val_bpb": 1.0, '

    document = await refuse(COMPLETE, f'{{"experiment_id": "mar11-2", {value_of}"{field}": {shown}}}')

    assert field in document["detail"]


@pytest.mark.parametrize(("field", "hint"), [("val_bpb", "experiment/crash"), ("peak_vram_mb", "be finite")])
async def test_only_a_result_that_is_not_finite_is_to_be_reported_as_a_crash(
    client: httpx.AsyncClient, field: str, hint: str
) -> None:
    body = f'{{"experiment_id": "mar11-2", "{field}": NaN}}'

    document = problem(await curl(client, COMPLETE, body), 422)

    assert hint in document["hint"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("val_bpb", "0.99"),
        ("val_bpb", True),
        ("val_bpb", None),
        ("val_bpb", [0.99]),
        ("experiment_id", 2),
        ("peak_vram_mb", "1"),
        ("peak_vram_mb", -1.0),
        ("training_seconds", 1e300),
        ("num_steps", {}),
        ("metrics", [1.0]),
        ("metrics", {"loss": "low"}),
        ("metrics", {f"m{n}": 1.0 for n in range(201)}),
        ("metrics", {"x" * 101: 1.0}),
        ("metrics", {"": 1.0}),
        ("metrics", {"a\u202eb": 1.0}),
        ("attempt", 1.5),
        ("attempt", "1"),
        ("fence", -1),
        ("budget_seconds", 0),
        ("gpu_class", "x" * 101),
        ("no_such_field", 1),
    ],
)
async def test_a_value_of_the_wrong_kind_is_named(refuse: Refuse, field: str, value: Any) -> None:
    document = await refuse(COMPLETE, {"experiment_id": "mar11-2", "val_bpb": 0.99} | {field: value})

    assert document["errors"][0]["field"].startswith(field)


TAGS = ["", "../mar11", "a/b", "..", ".hidden", "-rf", "mar11\n", " mar11", "mar 11", "x" * 41, "märz", "a*"]
IDS = ["../etc", "mar11-1\n", "", "a" * 97, "mar11:1", "*"]
HUGE = 10**30
REFUSED: list[tuple[str, Any]] = [
    *((SETUP, body) for body in ("[]", "1", "null", '"mar11"', "true", '[{"tag": "mar11"}]')),
    *((SETUP, {"tag": tag}) for tag in (*TAGS, "{lab}", "a:b")),
    *((REGISTER, idea(tag)) for tag in TAGS),
    *((HISTORY, {"tag": tag}) for tag in TAGS),
    *((COMPLETE, {"experiment_id": wrong, "val_bpb": 1.0}) for wrong in IDS),
    *((REGISTER, idea(parent_id=wrong)) for wrong in IDS),
    *((REGISTER, idea(commit_sha=wrong)) for wrong in IDS),
    (REGISTER, idea(hypothesis="")),
    (REGISTER, idea(hypothesis="x" * 4001)),
    (REGISTER, idea(parent_ids=["mar11-1"] * 17)),
    (REGISTER, idea(parent_ids="mar11-1")),
    (REGISTER, idea(parent_id="mar11-1", parent_ids=["mar11-2"])),
    (REGISTER, idea(seed=1.5)),
    (REGISTER, idea(seed="1")),
    (REGISTER, idea(config_delta=[1])),
    (REGISTER, idea(diff="x" * (4 * MIB + 1))),
    (REGISTER, idea(diff="ü" * (2 * MIB + 1))),
    (COMPLETE, {"experiment_id": "mar11-2", "val_bpb": 10**200}),
    (HISTORY, {"tag": "mar11", "limit": HUGE}),
    ("/api/experiment/near-misses", {"tag": "mar11", "limit": HUGE}),
    ("/api/search/set-strategy", {"tag": "mar11", "mode": "exploit", "reason": "r", "pin_for": HUGE}),
    ("/api/pool/acquire", {"experiment_id": "mar11-2", "wait": HUGE}),
    ("/api/pool/release", {"gpu_id": "host:gpu0", "experiment_id": "mar11-2", "fence": HUGE, "x": 1}),
    ("/api/experiment/submit", idea(priority=HUGE)),
    *(
        (HEARTBEAT, {"gpu_id": "host:gpu0", "health": health})
        for health in (
            {"temperature_c": 10**400},
            {"temperature_c": "hot"},
            {"ecc": HUGE},
            {"ecc": "many"},
            {"ecc": -1},
            {"throttle": 5},
            {"x": {"nested": 1}},
            {"x": [1]},
            {f"x{n}": 1 for n in range(33)},
            [1],
        )
    ),
    *(
        (path, {"tag": tag, "policy": policy})
        for path, tag in ((POLICY, "mar11"), (SETUP, "apr1"))
        for policy in (
            {"no_such": 1},
            {"crash_limit": "3"},
            {"crash_limit": 0},
            {"crash_limit": 2.5},
            {"near_miss_margin": -1},
            {"on_abort": "panic"},
            {"budgets": 5},
            {"budgets.base_s": 0},
            {"budgets.base_s.x": 1},
            {"adapt": {"keep_rate": 2}},
            {"a" + ".a" * 100_000: 1},
            {"": 1},
            {".": 1},
        )
    ),
]
"""Each on its own, by path and body."""


async def test_what_is_out_of_its_form_or_its_limits_is_refused(refuse: Refuse) -> None:
    for path, body in REFUSED:
        await refuse(path, body)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETE, {"experiment_id": "mar11-2", "val_bpb": 1.0, "attempt": HUGE}),
        (COMPLETE, {"experiment_id": "mar11-2", "val_bpb": 1.0, "fence": HUGE}),
        (POLICY, {"tag": "mar11", "policy": {}, "expected_version": HUGE}),
    ],
    ids=["attempt", "fence", "version"],
)
async def test_a_huge_number_of_what_has_gone_on_is_a_conflict(
    refuse: Refuse, path: str, body: dict[str, Any]
) -> None:
    await refuse(path, body, 409)


@pytest.mark.parametrize("path", ["%2e%2e", "..%2fetc", "mar11-1%0a", "%00", "%ff", "a" * 97, "mar11-1%20"])
async def test_a_path_that_is_no_plain_id_is_refused(client: httpx.AsyncClient, path: str) -> None:
    for url in (f"/api/experiment/{path}", f"/api/experiment/{path}/wait", f"/api/gpu/{path}/health"):
        response = await client.get(url)
        problem(response)
        assert response.status_code in (404, 422)


@pytest.mark.parametrize("missing", ["tag", "hypothesis", "category", "commit_sha", "diff_summary"])
async def test_each_missing_field_is_named(refuse: Refuse, missing: str) -> None:
    body = idea()
    del body[missing]

    document = await refuse(REGISTER, body)

    assert document["errors"] == [{"field": missing, "problem": "Field required"}]


async def test_constants_of_64_kilobytes_are_taken_and_longer_ones_are_not(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    taken = {"WIDTHS": "x" * (64 * 1024 - len('{"WIDTHS":""}'))}

    await registered(client, config_delta=taken)
    problem_found = await refused(
        client, 422, REGISTER, **idea(config_delta={"WIDTHS": taken["WIDTHS"] + "x"})
    )

    assert "config_delta" in problem_found["detail"]
    assert "change train.py instead" in problem_found["detail"]


async def test_the_largest_patch_is_taken(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    patch = "+x = 1\n" * (4 * MIB // 7)

    name = await registered(client, diff=patch)

    assert (await asked(client, f"/api/experiment/{name}"))["diff"] == patch


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (REGISTER, idea(hypothesis="a\0b")),
        (REGISTER, idea(diff_summary="a\0b")),
        (REGISTER, idea(diff="+\0\n")),
        (REGISTER, idea(config_delta={"a\0b": 1})),
        (REGISTER, idea(config_delta={"LR": ["\0"]})),
        ("/api/experiment/crash", {"experiment_id": "mar11-2", "error": "\0"}),
        ("/api/experiment/setup", {"tag": "apr1", "branch": "a\0"}),
        ("/api/pool/register", {"gpu_id": "g", "gpu_index": 0, "gpu_name": "\0", "vram_mb": 1}),
    ],
    ids=range(8),
)
async def test_a_nul_character_is_refused(refuse: Refuse, path: str, body: dict[str, Any]) -> None:
    assert "NUL" in (await refuse(path, body))["detail"]


@pytest.mark.parametrize(
    "text", ["ünïcödé 日本語", '"quotes" \\ and \t tabs\nand lines', "</script>{{7*7}}%s${x}"]
)
async def test_other_text_comes_back_as_it_was_sent(client: httpx.AsyncClient, text: str) -> None:
    await open_tag(client)

    name = await registered(client, hypothesis=text, diff=text, config_delta={"A": [text]})

    shown = await asked(client, f"/api/experiment/{name}")
    assert shown["experiment"]["hypothesis"] == shown["diff"] == text
    assert shown["experiment"]["config_delta"] == {"A": [text]}


async def test_huge_numbers_in_harmless_places_do_no_harm(client: httpx.AsyncClient) -> None:
    await open_tag(client)

    name = await registered(client, seed=HUGE, config_delta={"N": HUGE})
    page = await told(client, "/api/experiment/history", tag="mar11", cursor=HUGE)

    shown = (await asked(client, f"/api/experiment/{name}"))["experiment"]
    assert (shown["seed"], shown["config_delta"]) == (HUGE, {"N": HUGE})
    assert page["total"] == 1
    problem(await client.get(f"/api/report/tags?offset={HUGE}"), 422)


async def test_a_health_sample_may_carry_further_values(client: httpx.AsyncClient) -> None:
    await add_gpu(client)

    await told(
        client, "/api/pool/heartbeat", gpu_id="host:gpu0", health={"temperature_c": 50, "fan": 0.5, "p": None}
    )

    worker = (await asked(client, "/api/pool/list"))["workers"][0]
    assert worker["health"] == {"temperature_c": 50.0, "fan": 0.5}


async def test_values_far_apart_still_have_a_verdict(client: httpx.AsyncClient) -> None:
    await open_tag(client, metric={"name": "loss"})
    await tried(client, 1e100)

    verdict = await tried(client, -1e100)

    assert (verdict["status"], verdict["delta"]) == ("keep", 2e100)


# -- what is no JSON body at all


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "multipart/form-data; boundary=x"},
        {"content_type": "application/xml"},
        {"content_type": "application/octet-stream"},
        {"content_type": "text/html"},
        {"content_encoding": "gzip"},
        {"content_encoding": "br"},
        {"content_encoding": "deflate"},
        {"content_encoding": "identity, gzip"},
    ],
    ids=str,
)
async def test_another_media_type_or_a_compressed_body_is_not_read(
    refuse: Refuse, headers: dict[str, str]
) -> None:
    await refuse(SETUP, '{"tag": "mar11"}', 415, **headers)


@pytest.mark.parametrize("path", [SETUP, REGISTER])
async def test_ten_megabytes_are_too_large_whether_announced_or_not(
    client: httpx.AsyncClient, process: Process, path: str
) -> None:
    before = await dump(process.lab)
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(160):
            sent += 65536
            yield b" " * 65536

    announced = await client.post(path, content=b" " * 10 * MIB)
    chunked = await client.post(path, content=chunks())

    assert "MiB" in problem(announced, 413)["detail"]
    problem(chunked, 413)
    assert await dump(process.lab) == before


async def test_register_takes_larger_bodies_than_others(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    body = json.dumps(idea(diff="x" * 2 * MIB))

    assert (await curl(client, REGISTER, body)).status_code == 200
    problem(await curl(client, "/api/experiment/history", body), 413)


async def test_unknown_routes_and_methods_say_where_the_routes_are_listed(client: httpx.AsyncClient) -> None:
    for method, path, status in (
        ("GET", "/api/no/such", 404),
        ("POST", "/nothing", 404),
        ("DELETE", REGISTER, 405),
        ("PUT", REGISTER, 405),
        ("POST", "/api/lab/status", 405),
    ):
        assert "/docs" in problem(await client.request(method, path), status)["hint"]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=1e3", "limit=NaN", "offset=-1", "extra=1", "limit=" + "9" * 5000]
)
async def test_a_bad_query_is_refused(client: httpx.AsyncClient, query: str) -> None:
    problem(await client.get(f"/api/report/tags?{query}"), 422)


@pytest.mark.parametrize("query", ["timeout=nan", "timeout=inf", "timeout=-1", "timeout=50.1", "until=never"])
async def test_a_bad_wait_is_refused(client: httpx.AsyncClient, query: str) -> None:
    await open_tag(client)
    await registered(client)

    problem(await client.get(f"/api/experiment/mar11-1/wait?{query}"), 422)


@pytest.mark.parametrize(
    "trace", [b"x", b"00-" + b"0" * 32, b"00-<script>", "ü".encode(), b"00-" + b"a" * 10_000]
)
async def test_a_traceparent_that_is_none_is_ignored(client: httpx.AsyncClient, trace: bytes) -> None:
    await open_tag(client)

    response = await client.post(REGISTER, json=idea(), headers=[(b"traceparent", trace)])

    name = response.json()["experiment_id"]
    own = response.headers["traceresponse"]
    assert (await asked(client, f"/api/experiment/{name}"))["experiment"]["traceparent"] == own
    assert own.encode() != trace


async def test_a_traceparent_is_kept_on_the_experiment_and_its_events(
    client: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client)
    trace = f"00-{'a' * 32}-{'b' * 16}-01"

    await client.post(REGISTER, json=idea(), headers={"traceparent": trace})

    assert (await asked(client, "/api/experiment/mar11-1"))["experiment"]["traceparent"] == trace
    assert [e.trace for e in await process.stream.last(1)] == [trace]


async def test_a_submit_that_names_its_parents_in_two_ways_is_refused(client: httpx.AsyncClient) -> None:
    await open_tag(client)

    answer = await refused(
        client, 422, "/api/experiment/submit", **idea(parent_id="mar11-1", parent_ids=["mar11-2"])
    )

    assert "disagree" in answer["detail"]
