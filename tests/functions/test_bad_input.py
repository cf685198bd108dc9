"""Bad input gets a problem document with a hint, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.contract import MIB
from functions.process.lifecycle import Process
from functions.table import table
from tests.labs import add_gpu, asked, curl, dump, idea, open_tag, problem, refused, registered, told, tried

COMPLETE = "/api/experiment/complete"
REGISTER = "/api/experiment/register"


async def a_lab(client: httpx.AsyncClient) -> None:
    """mar11-1 is kept, mar11-2 registered, one GPU idle."""
    await open_tag(client)
    await tried(client, 1.0)
    await registered(client)
    await add_gpu(client)


async def unchanged(
    client: httpx.AsyncClient,
    process: Process,
    path: str,
    body: Any,
    status: int | None = None,
    **headers: str,
) -> dict[str, Any]:
    """The problem of a request that has to be refused without a trace."""
    before = await dump(process.lab)

    document = problem(await curl(client, path, body, **headers), status)

    assert await dump(process.lab) == before
    return document


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
async def test_what_is_no_json_is_malformed(
    client: httpx.AsyncClient, process: Process, body: str | bytes
) -> None:
    content = body.encode() if isinstance(body, str) else body

    await unchanged(client, process, "/api/experiment/setup", content, 400)


@pytest.mark.parametrize("body", ["[]", "1", "null", '"mar11"', "true", '[{"tag": "mar11"}]'])
async def test_what_is_no_object_is_invalid(client: httpx.AsyncClient, process: Process, body: str) -> None:
    await unchanged(client, process, "/api/experiment/setup", body, 422)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 400])
@pytest.mark.parametrize("field", ["val_bpb", "peak_vram_mb", "metrics"])
async def test_a_result_that_is_no_finite_number_is_refused(
    client: httpx.AsyncClient, process: Process, field: str, value: str
) -> None:
    await a_lab(client)
    shown = value if field != "metrics" else f'{{"loss": {value}}}'
    value_of = "" if field == "val_bpb" else '"val_bpb": 1.0, '

    document = await unchanged(
        client, process, COMPLETE, f'{{"experiment_id": "mar11-2", {value_of}"{field}": {shown}}}', 422
    )

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
async def test_a_value_of_the_wrong_kind_is_named(
    client: httpx.AsyncClient, process: Process, field: str, value: Any
) -> None:
    await a_lab(client)

    document = await unchanged(
        client, process, COMPLETE, {"experiment_id": "mar11-2", "val_bpb": 0.99} | {field: value}, 422
    )

    assert document["errors"][0]["field"].startswith(field)


@pytest.mark.parametrize(
    "tag",
    [
        "",
        "../mar11",
        "a/b",
        "..",
        ".hidden",
        "-rf",
        "mar11\n",
        " mar11",
        "mar 11",
        "x" * 41,
        "märz",
        "a*",
        "{lab}",
        "a:b",
    ],
)
async def test_a_tag_that_is_no_plain_name_is_refused(
    client: httpx.AsyncClient, process: Process, tag: str
) -> None:
    await a_lab(client)

    await unchanged(client, process, "/api/experiment/setup", {"tag": tag}, 422)
    await unchanged(client, process, REGISTER, idea(tag), 422)
    await unchanged(client, process, "/api/experiment/history", {"tag": tag}, 422)


@pytest.mark.parametrize("wrong", ["../etc", "mar11-1\n", "", "a" * 97, "mar11:1", "*"])
async def test_an_id_that_is_no_plain_name_is_refused(
    client: httpx.AsyncClient, process: Process, wrong: str
) -> None:
    await a_lab(client)

    await unchanged(client, process, COMPLETE, {"experiment_id": wrong, "val_bpb": 1.0}, 422)
    await unchanged(client, process, REGISTER, idea(parent_id=wrong), 422)
    await unchanged(client, process, REGISTER, idea(commit_sha=wrong), 422)


@pytest.mark.parametrize("path", ["%2e%2e", "..%2fetc", "mar11-1%0a", "%00", "%ff", "a" * 97, "mar11-1%20"])
async def test_a_path_that_is_no_plain_id_is_refused(
    client: httpx.AsyncClient, process: Process, path: str
) -> None:
    await a_lab(client)
    before = await dump(process.lab)

    for url in (f"/api/experiment/{path}", f"/api/experiment/{path}/wait", f"/api/gpu/{path}/health"):
        response = await client.get(url)
        problem(response)
        assert response.status_code in (404, 422)

    assert await dump(process.lab) == before


@pytest.mark.parametrize("missing", ["tag", "hypothesis", "category", "commit_sha", "diff_summary"])
async def test_each_missing_field_is_named(client: httpx.AsyncClient, process: Process, missing: str) -> None:
    await a_lab(client)
    body = idea()
    del body[missing]

    document = await unchanged(client, process, REGISTER, body, 422)

    assert document["errors"] == [{"field": missing, "problem": "Field required"}]


@pytest.mark.parametrize(
    "changes",
    [
        {"hypothesis": ""},
        {"hypothesis": "x" * 4001},
        {"parent_ids": ["mar11-1"] * 17},
        {"parent_id": "mar11-1", "parent_ids": ["mar11-2"]},
        {"seed": 1.5},
        {"seed": "1"},
        {"config_delta": [1]},
        {"diff": "x" * (4 * MIB + 1)},
        {"diff": "ü" * (2 * MIB + 1)},
        {"parent_ids": "mar11-1"},
    ],
    ids=range(10),
)
async def test_a_registration_out_of_its_limits_is_refused(
    client: httpx.AsyncClient, process: Process, changes: dict[str, Any]
) -> None:
    await a_lab(client)

    await unchanged(client, process, REGISTER, idea(**changes), 422)


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
async def test_a_nul_character_is_refused(
    client: httpx.AsyncClient, process: Process, path: str, body: dict[str, Any]
) -> None:
    await a_lab(client)

    document = await unchanged(client, process, path, body, 422)

    assert "NUL" in document["detail"]


@pytest.mark.parametrize(
    "text", ["ünïcödé 日本語", '"quotes" \\ and \t tabs\nand lines', "</script>{{7*7}}%s${x}"]
)
async def test_other_text_comes_back_as_it_was_sent(client: httpx.AsyncClient, text: str) -> None:
    await open_tag(client)

    name = await registered(client, hypothesis=text, diff=text, config_delta={"A": [text]})

    shown = await asked(client, f"/api/experiment/{name}")
    assert shown["experiment"]["hypothesis"] == shown["diff"] == text
    assert shown["experiment"]["config_delta"] == {"A": [text]}


HUGE = 10**30


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETE, {"experiment_id": "mar11-2", "val_bpb": 1.0, "attempt": HUGE}),
        (COMPLETE, {"experiment_id": "mar11-2", "val_bpb": 1.0, "fence": HUGE}),
        (COMPLETE, {"experiment_id": "mar11-2", "val_bpb": 10**200}),
        ("/api/experiment/history", {"tag": "mar11", "limit": HUGE}),
        ("/api/experiment/near-misses", {"tag": "mar11", "limit": HUGE}),
        ("/api/search/set-strategy", {"tag": "mar11", "mode": "exploit", "reason": "r", "pin_for": HUGE}),
        ("/api/search/set-policy", {"tag": "mar11", "policy": {}, "expected_version": HUGE}),
        ("/api/pool/acquire", {"experiment_id": "mar11-2", "wait": HUGE}),
        ("/api/pool/release", {"gpu_id": "host:gpu0", "experiment_id": "mar11-2", "fence": HUGE, "x": 1}),
        ("/api/experiment/submit", idea(priority=HUGE)),
        ("/api/pool/heartbeat", {"gpu_id": "host:gpu0", "health": {"ecc": HUGE}}),
        ("/api/pool/heartbeat", {"gpu_id": "host:gpu0", "health": {"temperature_c": 10**400}}),
    ],
    ids=range(12),
)
async def test_huge_numbers_are_refused(
    client: httpx.AsyncClient, process: Process, path: str, body: dict[str, Any]
) -> None:
    await a_lab(client)

    await unchanged(client, process, path, body)


async def test_huge_numbers_in_harmless_places_do_no_harm(client: httpx.AsyncClient) -> None:
    await open_tag(client)

    name = await registered(client, seed=HUGE, config_delta={"N": HUGE})
    page = await told(client, "/api/experiment/history", tag="mar11", cursor=HUGE)

    shown = (await asked(client, f"/api/experiment/{name}"))["experiment"]
    assert (shown["seed"], shown["config_delta"]) == (HUGE, {"N": HUGE})
    assert page["total"] == 1
    problem(await client.get(f"/api/report/tags?offset={HUGE}"), 422)


@pytest.mark.parametrize(
    "policy",
    [
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
    ],
    ids=range(13),
)
async def test_a_policy_out_of_its_ranges_is_refused(
    client: httpx.AsyncClient, process: Process, policy: dict[str, Any]
) -> None:
    await a_lab(client)

    await unchanged(client, process, "/api/search/set-policy", {"tag": "mar11", "policy": policy}, 422)
    await unchanged(client, process, "/api/experiment/setup", {"tag": "apr1", "policy": policy}, 422)


@pytest.mark.parametrize(
    "health",
    [
        {"temperature_c": "hot"},
        {"ecc": "many"},
        {"ecc": -1},
        {"throttle": 5},
        {"x": {"nested": 1}},
        {"x": [1]},
        {f"x{n}": 1 for n in range(33)},
        [1],
    ],
    ids=range(8),
)
async def test_a_health_sample_that_cannot_be_judged_is_refused(
    client: httpx.AsyncClient, process: Process, health: Any
) -> None:
    await a_lab(client)

    await unchanged(client, process, "/api/pool/heartbeat", {"gpu_id": "host:gpu0", "health": health}, 422)

    await asked(client, "/api/gpu/host:gpu0/health")


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
    "kind", ["multipart/form-data; boundary=x", "application/xml", "application/octet-stream", "text/html"]
)
async def test_another_media_type_is_not_read(client: httpx.AsyncClient, process: Process, kind: str) -> None:
    await unchanged(client, process, "/api/experiment/setup", '{"tag": "mar11"}', 415, content_type=kind)


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "identity, gzip"])
async def test_a_compressed_body_is_not_read(
    client: httpx.AsyncClient, process: Process, encoding: str
) -> None:
    await unchanged(
        client, process, "/api/experiment/setup", '{"tag": "mar11"}', 415, content_encoding=encoding
    )


@pytest.mark.parametrize("path", ["/api/experiment/setup", REGISTER])
async def test_ten_megabytes_are_too_large_whether_announced_or_not(
    client: httpx.AsyncClient, process: Process, path: str
) -> None:
    await a_lab(client)
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
    await a_lab(client)

    problem(await client.get(f"/api/experiment/mar11-2/wait?{query}"), 422)


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


# -- anything at all

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["mar11", "mar11-1", "mar11-2", "host:gpu0", "optimizer", "keep", "exploit"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = {name: sorted(declared.request.model_fields) for name, declared in table().items()}
SLOW = {"pool::acquire": {"wait"}}


@pytest.mark.parametrize(
    "name", sorted(n for n in FIELDS if any(d.method == "POST" for d in table()[n].doors))
)
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
async def test_no_body_makes_a_function_fail(
    client: httpx.AsyncClient, name: str, data: st.DataObject
) -> None:
    door = next(d for d in table()[name].doors if d.method == "POST")
    fields = [f for f in FIELDS[name] if f not in SLOW.get(name, set())]
    names = st.sampled_from(fields) if fields else st.text(max_size=3)
    body: dict[str, Any] = data.draw(st.dictionaries(names, VALUES, max_size=len(fields) + 1))
    if "tag" in fields:
        body = {"tag": "mar11"} | body
    await curl(client, "/api/experiment/setup", {"tag": "mar11"})

    response = await curl(client, door.path, json.dumps(body))

    assert response.status_code < 500, (name, body, response.text)
    if response.status_code >= 400:
        problem(response)


async def test_a_submit_that_names_its_parents_in_two_ways_is_refused(client: httpx.AsyncClient) -> None:
    await open_tag(client)

    answer = await refused(
        client, 422, "/api/experiment/submit", **idea(parent_id="mar11-1", parent_ids=["mar11-2"])
    )

    assert "disagree" in answer["detail"]
