"""The published contract: an agent that knows only curl and the published program gets what it was promised."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from functions.kernel.contract import CATEGORIES
from functions.kernel.process.lifecycle import Process
from tests.labs import (
    add_gpu,
    asked,
    begun,
    crashed,
    curl,
    dump,
    idea,
    open_tag,
    problem,
    refused,
    registered,
    running,
    told,
    tried,
)


@pytest.fixture
def client(local: httpx.AsyncClient) -> httpx.AsyncClient:
    """What the published program has: curl, and no token."""
    return local


async def test_the_base_commit_defaults_to_the_head_of_the_workers_repository(
    client: httpx.AsyncClient, process: Process
) -> None:
    await process.presence.announce("keeper@host:1", {"kind": "keeper", "repository_head": "fedcba9"})
    await open_tag(client, "of-workers")
    await open_tag(client, "chosen", base_commit="1234567")
    assert (await told(client, "/api/report/brief", tag="of-workers"))["base_commit_sha"] == "fedcba9"
    assert (await told(client, "/api/report/brief", tag="chosen"))["base_commit_sha"] == "1234567"


async def test_what_is_unknown_is_not_found_by_any_function(operator: httpx.AsyncClient) -> None:
    of_tags: dict[str, dict[str, Any]] = {
        "experiment/register": idea(),
        "experiment/submit": idea(),
        "search/set-policy": {"policy": {}},
        "search/set-strategy": {"mode": "exploit", "reason": "r"},
        **{f"tag/{verb}": {} for verb in ("pause", "unpause", "budget")},
        **{f"report/{verb}": {} for verb in ("summary", "tsv", "brief")},
        **{f"experiment/{verb}": {} for verb in ("history", "best", "near-misses", "resume")},
        **{f"search/{verb}": {} for verb in ("strategy", "adapt", "suggest", "policy")},
    }
    of_runs: dict[str, dict[str, Any]] = {
        "experiment/complete": {"val_bpb": 1.0},
        "experiment/crash": {"error": "boom"},
        **{path: {} for path in ("experiment/stop", "gpu/train", "pool/acquire")},
        "report/diff": {"experiment_a": "mar11-7", "experiment_b": "mar11-8"},
    }

    for path, body in of_tags.items():
        document = await refused(operator, 404, f"/api/{path}", **{"tag": "mar11"} | body)
        assert ("mar11" in document["detail"], "setup" in document["hint"]) == (True, True), path
    for path, body in of_runs.items():
        run = {} if path == "report/diff" else {"experiment_id": "mar11-7"}
        await refused(operator, 404, f"/api/{path}", **run, **body)
    for path in ("experiment/mar11-7", "experiment/mar11-7/wait", "invocation/mar11-7.1"):
        problem(await operator.get(f"/api/{path}"), 404)
    for verb in ("heartbeat", "release", "drain", "deregister"):
        assert "register" in (await refused(operator, 404, f"/api/pool/{verb}", gpu_id="host:none"))["hint"]


async def test_a_repeated_idea_is_reported_and_other_constants_are_another_idea(
    client: httpx.AsyncClient,
) -> None:
    await open_tag(client)
    commit, diff = {"commit_sha": "aaaaaaa"}, {"diff": "--- a\n+++ b\n"}
    ideas: list[dict[str, Any]] = [commit | diff, diff, commit, {}]
    ideas += [commit | {"config_delta": {"LR": rate}} for rate in (0.1, 0.2, 0.2)]

    answers = [await told(client, "/api/experiment/register", **idea(**each)) for each in ideas]

    repeats = {"mar11-2": "mar11-1", "mar11-3": "mar11-1", "mar11-7": "mar11-6"}
    assert {a["experiment_id"]: a["duplicate_of"] for a in answers if a["duplicate_of"]} == repeats
    kept = (await told(client, "/api/experiment/history", tag="mar11"))["experiments"]
    assert {e["id"]: e["duplicate_of"] for e in kept if e["duplicate_of"]} == repeats


async def test_all_that_a_run_measured_is_kept_with_it(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    measured: dict[str, Any] = {"peak_vram_mb": 45060.2, "training_seconds": 300.1, "total_tokens_m": 499.6}
    measured |= {"mfu_percent": 39.8, "num_steps": 953, "num_params_m": 50.3, "depth": 8}
    measured |= {"metrics": {"startup_seconds": 1.5}}

    verdict = await tried(client, 0.9979, result=measured)

    shown = (await asked(client, f"/api/experiment/{verdict['experiment_id']}"))["experiment"]
    assert {name: shown[name] for name in measured} == measured
    assert shown["val_bpb"] == 0.9979


@pytest.mark.parametrize("path", ["complete", "crash"])
async def test_only_results_of_attempts_that_there_were_are_kept_as_evidence_and_not_without_end(
    operator: httpx.AsyncClient, process: Process, path: str
) -> None:
    await open_tag(operator)
    await add_gpu(operator)
    e = await running(operator, process)
    result: dict[str, Any] = {"val_bpb": 0.99} if path == "complete" else {"error": "boom"}

    result["experiment_id"] = e.experiment_id

    for attempt in (0, 2, 10**6):
        await refused(operator, 409, f"/api/experiment/{path}", attempt=attempt, **result)
    nothing = (await asked(operator, f"/api/experiment/{e.experiment_id}"))["late_results"]
    for fence in range(e.fence + 1, e.fence + 111):
        await refused(operator, 409, f"/api/experiment/{path}", attempt=1, fence=fence, **result)

    kept = (await asked(operator, f"/api/experiment/{e.experiment_id}"))["late_results"]
    assert nothing == []
    assert sorted(late["fence"] for late in kept) == list(range(e.fence + 1, e.fence + 101))


async def test_a_deregistered_gpu_is_not_brought_back_by_a_late_crash(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await add_gpu(client)
    name = await registered(client)
    await told(client, "/api/pool/acquire", experiment_id=name)
    for verb in ("release", "deregister"):
        await told(client, f"/api/pool/{verb}", gpu_id="host:gpu0")

    await told(client, "/api/experiment/crash", experiment_id=name, error="boom")

    assert (await asked(client, "/api/pool/list"))["total"] == 0
    assert (await add_gpu(client))["worker"]["status"] == "idle"


async def test_history_pages_lead_through_everything_once_from_either_end(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    for _ in range(3):
        await registered(client)

    for order, pages in (("newest", [[2, 3], [1]]), ("oldest", [[1, 2], [3]])):
        cursor = None
        for numbers in pages:
            request = {"tag": "mar11", "limit": 2, "order": order, "cursor": cursor}
            page = await told(client, "/api/experiment/history", **request)
            assert ([e["number"] for e in page["experiments"]], page["total"]) == (numbers, 3)
            cursor = page["next_cursor"]
        assert cursor is None


async def test_near_misses_are_measured_against_the_best_as_it_is_now(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await tried(client, 1.0)
    await tried(client, 1.0015)
    await tried(client, 1.0005)
    await tried(client, 1.5)

    early = await told(client, "/api/experiment/near-misses", tag="mar11")
    one = await told(client, "/api/experiment/near-misses", tag="mar11", limit=1)
    await tried(client, 0.999)
    late = await told(client, "/api/experiment/near-misses", tag="mar11")
    await tried(client, 0.9)
    none = await told(client, "/api/experiment/near-misses", tag="mar11")

    assert [n["experiment_id"] for n in early["near_misses"]] == ["mar11-3", "mar11-2"]
    assert [n["delta"] for n in early["near_misses"]] == pytest.approx([0.0005, 0.0015])
    assert one == {"near_misses": early["near_misses"][:1], "total": 2}
    assert ([n["experiment_id"] for n in late["near_misses"]], late["total"]) == (["mar11-3"], 1)
    assert none == {"near_misses": [], "total": 0}
    shown = early["near_misses"][0]
    assert (shown["val_bpb"], shown["category"]) == (1.0005, "architecture")
    assert all((shown["hypothesis"], shown["diff_summary"]))


async def waiting(
    http: httpx.AsyncClient, process: Process, name: str, query: str
) -> asyncio.Task[dict[str, Any]]:
    """A wait that has read the experiment's state: it touches the experiment right after."""
    open_key = process.lab.keys("open")
    await process.lab.command("ZADD", open_key, "XX", "1", name)
    task = asyncio.create_task(asked(http, f"/api/experiment/{name}/wait?{query}"))
    touched = 1.0
    while touched == 1.0:
        await asyncio.sleep(0.005)
        touched = float(await process.lab.command("ZSCORE", open_key, name))
    return task


async def test_wait_answers_at_a_change_or_at_the_end(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client)
    name, other = await registered(client, commit_sha="abc1234"), await registered(client)
    task = await waiting(client, process, name, "timeout=50")
    until_finished = await waiting(client, process, other, "timeout=50&until=finished")

    await told(client, "/api/experiment/complete", experiment_id=name, val_bpb=0.99)
    await told(client, "/api/gpu/train", experiment_id=other)
    await told(client, "/api/experiment/stop", experiment_id=other)
    outcome, stopped = await task, await until_finished

    assert (outcome["status"], outcome["changed"], outcome["finished"]) == ("keep", True, True)
    assert (outcome["val_bpb"], outcome["improved"], outcome["best_val_bpb"]) == (0.99, True, 0.99)
    assert (outcome["action"], outcome["base_commit_sha"]) == ("keep_commit", "abc1234")
    assert outcome["next"]
    assert (stopped["status"], stopped["action"]) == ("stopped", "git_reset")


async def test_a_submission_is_queued_and_told_what_it_waits_for(
    client: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client)
    before = await dump(process.lab)
    for untrainable in ({"gpu_id": "host:none"}, {"timeout_s": 1e9}):
        problem(await curl(client, "/api/experiment/submit", idea(**untrainable)))
    assert await dump(process.lab) == before

    answers = [await told(client, "/api/experiment/submit", **idea()) for _ in range(2)]
    outcome = await asked(client, "/api/experiment/mar11-2/wait?timeout=0")

    assert [a["status"] for a in answers] == ["queued", "queued"]
    queues = [each["queue"] for each in (*answers, outcome)]
    assert queues == [{"position": place, "workers": 0} for place in (1, 2, 2)]
    assert all("./nightjar worker" in each["next"] for each in (*answers, outcome))
    assert answers[0]["wait_url"] == "/api/experiment/mar11-1/wait"
    assert answers[0]["status_url"] == "/api/invocation/mar11-1.1"


async def test_a_training_is_accepted_and_followed(operator: httpx.AsyncClient, process: Process) -> None:
    await open_tag(operator)
    await add_gpu(operator)
    name = await registered(operator)
    accepted = await curl(operator, "/api/gpu/train", {"experiment_id": name})
    queued = await asked(operator, accepted.json()["status_url"])
    await told(operator, "/api/pool/dispatch")
    e = await begun(process, name)
    under_way = await asked(operator, accepted.json()["status_url"])

    lease = {"experiment_id": name, "attempt": e.attempt, "fence": e.fence}
    await told(operator, "/api/experiment/complete", **lease, val_bpb=0.9)
    done = await asked(operator, accepted.json()["status_url"])

    assert accepted.status_code == 202
    assert accepted.json()["invocation_id"] == "mar11-1.1"
    told_of = [(i["status"], i["finished"]) for i in (queued, under_way, done)]
    assert told_of == [("queued", False), ("running", False), ("keep", True)]
    assert done["result"]["val_bpb"] == 0.9
    problem(await operator.get("/api/invocation/mar11-1.2"), 404)


async def test_an_agent_that_never_reported_is_lost_and_still_judged_when_it_comes_late(
    client: httpx.AsyncClient, operator: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client)
    name = await registered(client)
    await process.lab.command("ZADD", process.lab.keys("open"), "1", name)

    swept = await told(operator, "/api/pool/sweep")
    lost = (await told(client, "/api/report/summary", tag="mar11"))["stats"]
    verdict = await told(client, "/api/experiment/complete", experiment_id=name, val_bpb=0.99)
    after = (await told(client, "/api/report/summary", tag="mar11"))["stats"]

    assert swept["experiments"] == {name: "lost"}
    assert (lost["total"], lost["lost"]) == (0, 1)
    assert verdict["status"] == "keep"
    assert (after["total"], after["kept"], after["lost"]) == (1, 1, 0)


async def test_a_pinned_strategy_survives_adapt_for_its_experiments(client: httpx.AsyncClient) -> None:
    await open_tag(client)

    pinned = await told(
        client, "/api/search/set-strategy", tag="mar11", mode="ablation", reason="tidy up", pin_for=2
    )
    modes = []
    for value in (1.0, 0.9):
        await tried(client, value)
        modes.append((await told(client, "/api/search/adapt", tag="mar11"))["mode"])

    assert (pinned["mode"], pinned["explore_ratio"], pinned["temperature"]) == ("ablation", 0.7, 1.0)
    assert (pinned["reason"], pinned["pinned_until"]) == ("tidy up", 2)
    assert modes == ["ablation", "explore"]
    by_default = await told(client, "/api/search/set-strategy", tag="mar11", mode="exploit", reason="go on")
    assert by_default["pinned_until"] == 2 + 5


async def test_an_empty_tag_begins_with_its_baseline(client: httpx.AsyncClient) -> None:
    opened = await open_tag(client)

    empty = await told(client, "/api/report/brief", tag="mar11")
    first = await told(client, "/api/search/suggest", tag="mar11")
    await tried(client, 1.0)
    second = await told(client, "/api/search/suggest", tag="mar11")
    after = await told(client, "/api/report/brief", tag="mar11")

    assert "baseline" in opened["next"]
    assert opened["next"] == empty["next"]
    assert after["next"] == "Ask for a direction: POST /api/search/suggest."
    assert "submit it unchanged" in first["next"]
    assert "commit one change to it" in second["next"]
    assert {a["trace_mode"] for a in (opened, empty, first, after)} == {"single"}


async def test_so_many_crashes_that_all_is_broken_change_what_is_next(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await tried(client, 1.0)
    before = [await crashed(client) for _ in range(2)]
    third = await crashed(client)

    waited = await asked(client, f"/api/experiment/{third['experiment_id']}/wait?timeout=0")
    brief = await told(client, "/api/report/brief", tag="mar11")
    suggestion = await told(client, "/api/search/suggest", tag="mar11")
    await tried(client, 1.0)
    healed = await told(client, "/api/report/brief", tag="mar11")

    assert "unchanged" not in "".join(a["next"] for a in before)
    assert all(a["should_abort"] for a in (third, waited, brief, suggestion))
    assert all("3 runs in a row crashed" in a["next"] for a in (third, waited, brief, suggestion))
    assert suggestion["suggestions"][0] == "Run mar11-1 unchanged: 3 runs in a row crashed."
    assert (healed["should_abort"], healed["consecutive_crashes"]) == (False, 0)
    assert "crashed" not in healed["next"]


async def test_briefs_and_suggestions_fit_into_two_thousand_tokens(client: httpx.AsyncClient) -> None:
    tag, text = "t" * 40, "word " * 799
    await open_tag(client, tag, branch=text)
    for nth in range(12):
        texts: dict[str, Any] = {"hypothesis": text, "diff_summary": text, "category": CATEGORIES[nth]}
        await tried(client, 1.0 + nth / 10000, tag, **texts)
    for _ in range(12):
        await registered(client, tag, diff_summary=text)
    await told(client, "/api/search/set-strategy", tag=tag, mode="combine", reason=text)

    brief = await curl(client, "/api/report/brief", {"tag": tag})
    suggestion = await curl(client, "/api/search/suggest", {"tag": tag})

    assert len(brief.content) <= 4 * 2000
    assert len(suggestion.content) <= 4 * 2000


async def test_a_gpu_keeps_its_lease_as_it_registers_again_and_is_lent_next(
    client: httpx.AsyncClient,
) -> None:
    await open_tag(client)
    await add_gpu(client)
    holder, other = await registered(client), await registered(client)
    lease = await told(client, "/api/pool/acquire", experiment_id=holder)

    again = await add_gpu(client)
    task = asyncio.create_task(told(client, "/api/pool/acquire", experiment_id=other, wait=50))
    await asyncio.sleep(0.02)

    assert (again["worker"]["status"], again["worker"]["experiment_id"]) == ("training", holder)
    assert (await told(client, "/api/pool/acquire", experiment_id=holder))["fence"] == lease["fence"]
    await told(client, "/api/pool/release", gpu_id="host:gpu0", experiment_id=holder)
    assert (await task)["acquired"] is True


async def test_a_drained_gpu_finishes_its_run_and_gets_no_other(
    client: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    await open_tag(client)
    await add_gpu(client)
    name, other = await registered(client), await registered(client)
    await told(client, "/api/pool/acquire", experiment_id=name)

    drained = await told(operator, "/api/pool/drain", gpu_id="host:gpu0")
    beat = await told(client, "/api/pool/heartbeat", gpu_id="host:gpu0")
    held = await refused(operator, 409, "/api/pool/deregister", gpu_id="host:gpu0")
    await told(client, "/api/pool/release", gpu_id="host:gpu0")
    denied = await told(client, "/api/pool/acquire", experiment_id=other)
    undone = await told(operator, "/api/pool/drain", gpu_id="host:gpu0", undo=True)

    assert (drained["status"], drained["experiment_id"]) == ("training", name)
    assert beat["action"] == "drain"
    assert "drain" in held["hint"]
    assert denied["acquired"] is False
    assert undone["status"] == "idle"


async def test_tags_are_listed_newest_first(client: httpx.AsyncClient) -> None:
    for name in ("one", "two", "three"):
        await open_tag(client, name)

    answer = await asked(client, "/api/report/tags")
    page = await asked(client, "/api/report/tags?limit=1&offset=1")

    assert [t["name"] for t in answer["tags"]] == ["three", "two", "one"]
    assert [t["name"] for t in page["tags"]] == ["two"]
    assert answer["total"] == page["total"] == 3


async def test_a_brief_tells_why_runs_failed(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    error = "Traceback (most recent call last):\n  ...\nRuntimeError: shapes differ\n"
    await crashed(client, error=error, kind="other")
    await tried(client, 1.0)

    failed, kept = (await told(client, "/api/report/brief", tag="mar11"))["last_results"]

    assert (failed["error_kind"], failed["error"]) == ("other", "RuntimeError: shapes differ")
    assert not {"error", "error_kind"} & kept.keys()


async def test_json_is_read_from_whatever_type_curl_and_programs_send(client: httpx.AsyncClient) -> None:
    body = json.dumps({"tag": "mar11"})
    await open_tag(client)

    for kind in ("application/json", "application/json; charset=utf-8", "text/plain", "", None):
        headers = {} if kind is None else {"content-type": kind}
        response = await client.post("/api/search/strategy", content=body, headers=headers)

        assert response.status_code == 200, kind


async def test_a_table_for_a_spreadsheet_has_no_formula_of_an_agent(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await tried(client, 1.0, description="=1+1")

    plain = await told(client, "/api/report/tsv", tag="mar11")
    quoted = await told(client, "/api/report/tsv", tag="mar11", spreadsheet=True)

    assert plain["tsv"].endswith("\t1.000000\t0.0\tkeep\t=1+1\n")
    assert quoted["tsv"].endswith("\t1.000000\t0.0\tkeep\t'=1+1\n")
