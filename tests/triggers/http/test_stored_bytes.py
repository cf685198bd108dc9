"""Stored bytes: a token has a daily limit; equal patches are stored once; a changed patch is refused."""

from __future__ import annotations

import asyncio
import random
import re
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.table import table
from state.experiments import Experiments
from state.ids import RESERVED
from state.records import Role
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import add_gpu, asked, bearer, begun, curl, events_of, idea, open_tag, problem, refused, told
from triggers.http.answering import NEVER_FULL, can_be_refused

LONG = 40_000
"""Bytes of a patch that hardly gets shorter by compression: two of them fit into a day."""


def patch(seed: int) -> str:
    text = "".join(
        random.Random(seed).choices(
            "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/", k=LONG
        )
    )
    return f"diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-A\n+{text}\n"


@pytest.fixture
async def process(settings: Settings) -> AsyncIterator[Process]:
    async with opened("web", settings.model_copy(update={"stored_mb_a_day": 0.08})) as process:
        yield process


@pytest.fixture
async def ann(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    """An agent of a lab whose tokens store two long patches a day."""
    async with http_client(process) as http:
        http.headers.update(await bearer(process, "olga", "operator"))
        await open_tag(http, policy={"baseline_first": False, "traces.mode": "multi"})
        http.headers.update(await bearer(process, "ann", "agent"))
        yield http


async def test_a_token_that_has_stored_its_patches_of_a_day_is_told_when_there_is_room(
    process: Process, ann: httpx.AsyncClient
) -> None:
    for _ in range(3):  # what the lab has counts once
        await told(ann, "/api/experiment/register", **idea(diff=patch(1)))
    await told(ann, "/api/experiment/submit", **idea(diff=patch(2)))

    over = await refused(ann, 429, "/api/experiment/register", **idea(diff=patch(3)))
    over_too = await refused(ann, 429, "/api/experiment/submit", **idea(diff=patch(3)))
    await told(ann, "/api/experiment/submit", **idea())
    again = await told(ann, "/api/experiment/register", **idea(diff=patch(1)))
    async with http_client(process) as other:
        callers: dict[str, Role] = {"bob": "agent", "otto": "operator"}
        for name, role in callers.items():
            other.headers.update(await bearer(process, name, role))
            await told(other, "/api/experiment/submit", **idea(diff=patch(4)))

    assert 86_000 < over["retry_after"] <= 86_400
    assert "room again in 24 h" in over["detail"]
    assert over_too["code"] == over["code"] == "stored_limit"
    assert "without diff" in over["hint"]
    assert again["duplicate_of"] == "mar11-1"
    assert (await told(ann, "/api/experiment/history", tag="mar11"))["total"] == 8
    assert await stored(process, "otto") == 0


async def test_what_a_worker_stores_of_a_run_counts_for_the_token_that_submitted_it(
    process: Process, ann: httpx.AsyncClient
) -> None:
    keeper = process.invoker.system("keeper")
    gpu = {"gpu_id": "box:0", "gpu_index": 0, "gpu_name": "H100", "vram_mb": 80000}
    await process.invoker.call("pool::register_gpu", gpu, keeper)
    name = (await told(ann, "/api/experiment/submit", **idea()))["experiment_id"]
    await process.invoker.call("pool::dispatch", {}, keeper)
    run = await begun(process, name)

    assert await Experiments(process.lab).note_source(
        run, attempt=1, fence=run.fence, tree_id="7" * 40, patch=patch(5).encode(), differs=False
    )

    await told(ann, "/api/experiment/register", **idea(diff=patch(1)))
    await refused(ann, 429, "/api/experiment/register", **idea(diff=patch(2)))


async def test_the_log_of_a_run_counts_once_for_the_token_that_submitted_it(
    process: Process, ann: httpx.AsyncClient
) -> None:
    name = (await told(ann, "/api/experiment/submit", **idea()))["experiment_id"]
    experiments = Experiments(process.lab)
    e, before = await experiments.get(name), await stored(process)

    await asyncio.gather(*(experiments.keep_log(e, "x" * lines) for lines in (1000, 1500)))
    await experiments.keep_log(e, "x" * 1200)

    assert await stored(process) - before == 16 * 1024


async def test_a_tag_whose_patches_fill_its_budget_takes_no_new_one(process: Process) -> None:
    async with http_client(process) as http:
        http.headers.update(await bearer(process, "olga", "operator"))
        await open_tag(http, policy={"baseline_first": False})
        await told(http, "/api/tag/budget", tag="mar11", patch_bytes=70_000)
        await told(http, "/api/experiment/register", **idea(diff=patch(1)))
        await told(http, "/api/experiment/submit", **idea(diff=patch(2)))

        over = await refused(http, 409, "/api/experiment/register", **idea(diff=patch(3)))
        over_too = await refused(http, 409, "/api/experiment/submit", **idea(diff=patch(3)))
        await told(http, "/api/experiment/submit", **idea(diff=patch(1)))
        await told(http, "/api/experiment/submit", **idea())
        account = (await told(http, "/api/tag/budget", tag="mar11", patch_bytes=4 * LONG))["patch_bytes"]
        await told(http, "/api/experiment/register", **idea(diff=patch(3)))

    assert over["code"] == over_too["code"] == "budget_exhausted"
    assert over["resource"] == "patch_bytes"
    assert "without diff" in over["hint"]
    assert LONG < account["spent"] < 2 * LONG
    assert account["left"] == account["limit"] - account["spent"]
    warned = await events_of(process, "tag.budget_warning")
    assert [(w["resource"], w["limit"]) for w in warned] == [("patch_bytes", 70_000)]


def test_a_token_stores_a_gigabyte_a_day_by_default() -> None:
    assert Settings().stored_mb_a_day == 1000


LINE = 4000
"""Characters of the longest line that a request may hold."""


async def stored(process: Process, owner: str = "ann") -> int:
    """Bytes that are counted of an owner."""
    return int(await process.lab.command("HGET", process.lab.keys("stored", owner), "bytes") or 0)


async def fill(process: Process, owner: str) -> None:
    """Leave an owner no room for a day."""
    key = process.lab.keys("stored", owner)
    await process.lab.command("HINCRBY", key, "bytes", 100_000)
    await process.lab.command("EXPIRE", key, 86_400)


def joining(worker_id: str) -> dict[str, Any]:
    return {"worker_id": worker_id, "gpu_type": "H100", "baseline_bpb": 1.0, "tag": "swarm"}


def wordy(**more: Any) -> dict[str, Any]:
    """An idea with texts as long as they may be."""
    text = "x" * LINE
    return idea(hypothesis=text, description=text, diff_summary=text, **more)


async def test_long_texts_with_an_idempotency_key_fill_the_quota_and_no_more(
    process: Process, ann: httpx.AsyncClient
) -> None:
    answers = [
        await curl(ann, "/api/experiment/register", wordy(), idempotency_key=f"k{n}") for n in range(20)
    ]

    accepted = [a for a in answers if a.status_code == 200]
    assert {a.status_code for a in answers} == {200, 429}
    assert len(accepted) == 3
    assert 3 * 4 * LINE < await stored(process) <= 80_000
    refusal = problem(answers[-1], 429)
    assert refusal["code"] == "stored_limit"
    assert refusal["retry_after"] == pytest.approx(86_400, abs=60)


async def test_answers_that_are_kept_count(process: Process, ann: httpx.AsyncClient) -> None:
    counts = [await stored(process)]
    for n in range(3):
        answer = await curl(ann, "/api/search/suggest", {"tag": "mar11"}, idempotency_key=f"k{n}")
        counts.append(await stored(process))
        assert counts[-1] - counts[-2] >= len(answer.content)

    unkeyed = await curl(ann, "/api/search/suggest", {"tag": "mar11"})

    assert unkeyed.status_code == 200
    assert await stored(process) == counts[-1]


async def test_a_full_quota_refuses_new_work_and_nothing_that_is_under_way(
    process: Process, ann: httpx.AsyncClient
) -> None:
    name, kept = (await told(ann, "/api/experiment/register", **idea()))["experiment_id"], idea()
    first = await curl(ann, "/api/experiment/register", kept, idempotency_key="kept")
    chosen = await told(ann, "/api/trace/select", tag="mar11")
    await add_gpu(ann, "ann:0")
    await fill(process, "ann")

    again = await curl(ann, "/api/experiment/register", kept, idempotency_key="kept")
    for path, body in (
        ("/api/experiment/register", idea()),
        ("/api/experiment/setup", {"tag": "apr1"}),
        ("/api/trace/select", {"tag": "mar11"}),
    ):
        await refused(ann, 429, path, **body)
    result = {"experiment_id": name, "val_bpb": 0.99}
    answered = await curl(ann, "/api/experiment/complete", result, idempotency_key="report")
    waited = await ann.get(f"/api/experiment/{name}/wait?timeout=0")
    await told(ann, "/api/trace/renew", selection_id=chosen["selection_id"])
    await told(ann, "/api/agent/announce", tag="mar11", agent="ann", state="working")
    await add_gpu(ann, "ann:0")
    await told(ann, "/api/pool/deregister", gpu_id="ann:0")
    await told(ann, "/api/event/ticket")
    await told(ann, "/api/token/sign-in")
    best = (await told(ann, "/api/experiment/best", tag="mar11"))["best"]
    rotated = await told(ann, "/api/token/rotate", overlap_s=0)

    assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
    assert answered.status_code == waited.status_code == 200
    assert best["experiment_id"] == name
    assert len([key async for key in process.lab.scan("answers:*")]) == 1
    ann.headers["authorization"] = f"Bearer {rotated['token']}"
    await refused(ann, 429, "/api/experiment/register", **idea())


async def test_who_fills_the_quota_of_one_enroll_token_keeps_nobody_out_with_another(
    process: Process,
) -> None:
    await bearer(process, "olga", "operator")
    async with http_client(process, by_key=False) as http:
        one, other = [
            (
                await process.tokens.issue(
                    name=name, role="worker", kind="enroll", lasts_s=60, issued_by="olga"
                )
            ).text
            for name in ("one", "other")
        ]
        await told(http, "/api/token/enroll", enroll_token=one, name="w1")
        counted = await stored(process, "one")
        await fill(process, "one")

        over = await refused(http, 429, "/api/token/enroll", enroll_token=one, name="w2")
        over_too = await refused(http, 429, "/register", enroll_token=one, **joining("w3"))
        await told(http, "/api/token/enroll", enroll_token=other, name="w4")
        welcome = await told(http, "/register", enroll_token=other, **joining("w5"))

    assert counted > 200
    assert over["code"] == over_too["code"] == "stored_limit"
    assert "'one' has stored" in over["detail"]
    assert welcome["ok"]
    assert await stored(process, "anyone") == 0


async def test_callers_without_a_token_share_one_quota_in_an_open_lab(process: Process) -> None:
    async with http_client(process, by_key=False) as http:
        await open_tag(http)
        for _ in range(3):
            await told(http, "/api/experiment/register", **wordy())
        over = await refused(http, 429, "/api/experiment/register", **wordy())
        assert await stored(process, "local") <= 80_000
        await fill(process, "local")
        over_too = await refused(http, 429, "/register", **joining("w1"))

    assert over["code"] == over_too["code"] == "stored_limit"


OTHER = zlib.compress(b"diff --git a/train.py b/train.py\n+import os\n")
"""Another patch, as it would be stored."""


@pytest.mark.parametrize(
    "content",
    [OTHER, b"no zlib", zlib.compress(bytes(50_000_000)), b""],
    ids=["another", "no patch", "50 MB of zeros", "nothing"],
)
async def test_a_patch_that_was_rewritten_in_redis_is_shown_to_nobody_until_the_right_one_takes_its_place(
    process: Process, ann: httpx.AsyncClient, content: bytes
) -> None:
    one, other = [
        (await told(ann, "/api/experiment/register", **idea(diff=patch(n))))["experiment_id"] for n in (1, 2)
    ]

    await rewritten(process, one, content)
    shown = problem(await ann.get(f"/api/experiment/{one}"), 409)
    compared = await refused(ann, 409, "/api/report/diff", experiment_a=one, experiment_b=other)
    await process.lab.command("DEL", process.lab.keys("stored", "ann"))  # the next day
    again = (await told(ann, "/api/experiment/register", **idea(diff=patch(1))))["experiment_id"]

    for answer in (shown, compared):
        assert "is not the one that was registered" in answer["detail"]
        assert "register the right patch again" in answer["hint"]
    for name, seed in ((one, 1), (again, 1), (other, 2)):
        assert (await asked(ann, f"/api/experiment/{name}"))["diff"] == patch(seed)


async def rewritten(process: Process, experiment_id: str, content: bytes) -> None:
    """Put something else in the place of an experiment's patch."""
    e = await Experiments(process.lab).get(experiment_id)
    await process.lab.command("SET", process.lab.keys("diffs", e.diff_id or ""), content)


PAGE = (Path(__file__).parents[3] / "docs" / "tokens.md").read_text()


def test_the_tokens_page_lists_the_functions_that_a_full_quota_refuses() -> None:
    refused = {
        name for name, f in table().items() if can_be_refused(f) and set(f.roles) - {"operator", "anyone"}
    }

    [sentence] = re.findall(r"A full quota refuses ([^.]*)\.", PAGE)

    assert set(table()) >= NEVER_FULL
    assert set(re.findall(r"`(\w+::\w+)`", sentence)) == refused


def test_the_names_of_the_lab_itself_stand_in_the_tokens_page() -> None:
    [sentence] = re.findall(r"The lab itself uses the names ([^.]*)\.", PAGE)

    assert set(re.findall(r"`(\w+)`", sentence)) == RESERVED
