"""A backup of the last version, which holds one of everything: it is restored, migrated, and research goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.process.lifecycle import Process, opened
from state.backup import restore
from state.client import Lab
from state.codes import code_of
from state.embedded import EmbeddedRedis
from state.experiments import Experiments
from state.policies import Policies
from state.pool import Pool
from state.records import Best
from state.schedules import Schedules
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import asked, begun, curl, registered, told

LAST_VERSION = Path(__file__).parents[1] / "data" / "lab-e5341d4.nightjar"
"""What it holds is told by make_lab_e5341d4.py beside it."""
STATUSES = {
    "keep": ["branches-9", "held-1", "plain-8", "trusted-5"],
    "discard": ["branches-5", "plain-4", "trusted-4"],
    "crash": ["branches-8", "plain-5"],
    "timeout": ["plain-11", "plain-6"],
    "stopped": ["plain-12", "plain-7"],
    "lost": ["brief-1"],
    "invalid": ["plain-10"],
    "measured": ["trusted-1.2", "trusted-1.3"],
    "registered": ["branches-10", "plain-13", "plain-22"],
    "queued": ["trusted-2.2", "trusted-3.2", "trusted-5.2", "plain-14", "plain-21", "held-4", "branches-11"],
}
"""Experiments by their status after the restore: what was with a worker waits again, or was told to stop."""
QUEUE = (
    *("trusted-2.2", "trusted-3.2", "trusted-5.2", "plain-18", "plain-16", "plain-14"),
    *("plain-19", "plain-20", "plain-15", "branches-11", "plain-17"),
)
"""Who waits for any GPU, in the order of their rounds."""


@pytest.fixture
async def process(settings: Settings, redis_server: EmbeddedRedis) -> AsyncIterator[Process]:
    """A web process of this version, on the lab of the last one."""
    lab = Lab(settings.lab, redis_server.url)
    await restore(lab, LAST_VERSION)
    await lab.close()
    async with opened("web", settings) as running:
        yield running


@pytest.fixture
async def http(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    """Its HTTP, with an operator's token: the lab lets nobody in without one."""
    issued = await by_system(process, "token::issue", name="otto", role="operator")
    async with http_client(process) as client:
        client.headers["authorization"] = f"Bearer {issued['token']}"
        yield client


async def by_system(process: Process, function: str, **fields: Any) -> dict[str, Any]:
    """The answer of a function that the lab itself calls."""
    invoker = process.invoker
    return (await invoker.call(function, fields, invoker.system("test"))).model_dump()


async def add_gpus(process: Process, count: int) -> None:
    """The workers beside the lab come back, and perhaps more of them."""
    for n in range(count):
        gpu = {"gpu_id": f"host:gpu{n}", "gpu_index": n, "gpu_name": "H100", "vram_mb": 80000.0}
        await by_system(process, "pool::register_gpu", **gpu)


async def faults(http: httpx.AsyncClient) -> list[str]:
    """What the audit finds wrong."""
    return list((await told(http, "/api/lab/audit"))["violations"])


async def finished(http: httpx.AsyncClient, process: Process, name: str, value: float) -> dict[str, Any]:
    """The verdict on a leased experiment whose worker begins and measures this."""
    e = await begun(process, name)
    body = {"attempt": e.attempt, "fence": e.fence, "gpu_class": "H100", "budget_seconds": 300}
    answer = await told(
        http,
        "/api/experiment/complete",
        experiment_id=name,
        val_bpb=value,
        evaluator_hash="e" * 16,
        training_seconds=100,
        **body,
    )
    assert e.gpu_id is not None
    await Pool(process.lab).release(e.gpu_id, name, e.fence, proven=True)
    await told(http, "/api/experiment/judge-retests", experiment_id=name)
    return answer


async def test_every_record_of_the_last_versions_lab_is_there_and_agrees_with_the_others(
    http: httpx.AsyncClient, process: Process
) -> None:
    experiments = Experiments(process.lab)
    plain = (await told(http, "/api/experiment/best", tag="plain"))["best"]
    branches = await told(http, "/api/trace/list", tag="branches")
    pause = (await Schedules(process.lab).look("trace::sweep")).firings

    assert await faults(http) == []
    for status, names in STATUSES.items():
        assert {name: (await experiments.get(name)).status for name in names} == dict.fromkeys(names, status)
    assert (plain["experiment_id"], plain["val_bpb"]) == ("plain-8", 0.71)
    assert {t["trace_id"]: t["status"] for t in branches["traces"]} == {
        "branches-t1": "live",
        "branches-t2": "live",
        "branches-t3": "merged",
        "branches-t4": "dead",
        "branches-t5": "closed",
        "branches-t8": "pending",
        "branches-t9": "pending",
    }
    assert [w["description"] for w in (await told(http, "/api/webhook/list"))["webhooks"]] == [
        "receiver 0",
        "receiver 1",
    ]
    assert {t["name"] for t in (await told(http, "/api/token/list"))["tokens"]} >= {"olga", "ada", "hosts"}
    assert pause.paused_reason == "looking into it"
    assert (await told(http, "/api/event/dead"))["total"] == 1
    assert (await curl(http, "/api/experiment/best", {"tag": "plain"}, authorization="")).status_code == 401


async def test_history_tells_what_was_made_for_each_trace(http: httpx.AsyncClient) -> None:
    history = (await told(http, "/api/experiment/history", tag="branches", limit=100))["experiments"]
    traces = [t["trace_id"] for t in (await told(http, "/api/trace/list", tag="branches"))["traces"]]

    for name in traces:
        page = await told(http, "/api/experiment/history", tag="branches", trace_id=name)
        assert page["experiments"] == [e for e in history if e["trace_id"] == name], name
    assert {e["trace_id"] for e in history} >= {"branches-t1", "branches-t2"}


async def test_policies_keep_every_value_that_this_version_knows(process: Process) -> None:
    policy, version = await Policies(process.lab).get("plain")
    stored = await process.lab.hash(process.lab.keys("policy", "plain"))

    assert (policy.near_miss_margin, policy.crash_limit, policy.max_attempts) == (0.01, 4, 3)
    assert policy.adapt.window == 7
    assert version == 2
    assert json.loads(stored["values"]) == policy.model_dump(mode="json")


async def test_every_best_names_its_code_and_its_branch(process: Process) -> None:
    keys, experiments = process.lab.keys, Experiments(process.lab)
    bests = {
        "branches-6": keys.best("branches"),
        "plain-8": keys.best("plain"),
        "plain-9": keys.best("plain", "bbc421a2d6a8a36c"),
        "trusted-5": keys.best("trusted"),
    }

    for name, key in bests.items():
        best = Best.parse(await process.lab.hash(key))
        assert best.experiment_id == name
        for link in (*best.standing(), *best.rivals):
            e = await experiments.get(link.experiment_id)
            assert (link.code, link.trace_id) == (code_of(e, e.best_key), e.trace_id)
    trusted = Best.parse(await process.lab.hash(bests["trusted-5"]))
    assert [link.experiment_id for link in (*trusted.chain, *trusted.rivals)] == [
        *("trusted-2", "trusted-3", "trusted-5"),
        "trusted-4",
    ]


async def test_what_waits_knows_its_round_and_a_retest_takes_none(process: Process) -> None:
    names = ["plain-16", "plain-14", "plain-17", "plain-18", "held-3", "plain-21", "trusted-2.2"]

    rounds = [(await Experiments(process.lab).get(name)).queue_round for name in names]

    assert rounds == [4, 5, 7, 4, 1, 8, None]


async def test_what_waited_is_dispatched_in_its_order_and_ends_as_if_nothing_had_happened(
    http: httpx.AsyncClient, process: Process
) -> None:
    values = {"trusted-2.2": 0.9001, "trusted-3.2": 0.8991, "trusted-5.2": 0.8987}
    await add_gpus(process, 1)

    served: list[str] = []
    while leased := (await told(http, "/api/pool/dispatch"))["leased"]:
        served += leased
        await finished(http, process, leased[0], values.get(leased[0], 0.5))
    await add_gpus(process, 2)
    pinned = (await told(http, "/api/pool/dispatch"))["leased"]

    assert served == list(QUEUE)
    assert pinned == ["plain-21"]
    trusted = (await told(http, "/api/experiment/best", tag="trusted"))["best"]
    assert trusted["trust"] == "confirmed"
    assert await faults(http) == []


async def test_a_paused_tag_of_the_last_version_goes_on_where_it_stood(
    http: httpx.AsyncClient, process: Process
) -> None:
    await told(http, "/api/tag/unpause", tag="held")
    await add_gpus(process, 16)

    leased = (await told(http, "/api/pool/dispatch"))["leased"]

    assert {"held-2", "held-3", "held-4"} <= set(leased)
    assert (await Experiments(process.lab).get("held-4")).gpu_id == "host:gpu0"
    assert (await finished(http, process, "held-2", 0.9))["status"] == "keep"
    assert await faults(http) == []


async def test_agents_of_the_last_version_register_select_and_complete(
    http: httpx.AsyncClient, process: Process
) -> None:
    waits = {"experiment_id": "branches-10", "val_bpb": 0.94}
    completed = await told(http, "/api/experiment/complete", **waits)
    own = await told(http, "/api/experiment/complete", experiment_id="plain-22", val_bpb=0.3)
    selection = await told(http, "/api/trace/select", tag="branches")
    name = await registered(http, "branches", selection_id=selection["selection_id"])
    grown = await told(http, "/api/experiment/complete", experiment_id=name, val_bpb=0.93)

    assert (completed["status"], own["status"], grown["status"]) == ("keep", "discard", "keep")
    assert selection["status"] == "selected"
    assert (await asked(http, f"/api/experiment/{name}"))["experiment"]["trace_id"] == selection["trace_id"]
    assert await faults(http) == []


async def test_any_result_of_the_last_version_can_be_taken_back(http: httpx.AsyncClient) -> None:
    for name in ("plain-8", "plain-4", "trusted-3", "trusted-5", "branches-9", "branches-5"):
        answer = await told(http, "/api/experiment/retract", experiment_id=name, reason="wrong data")

        assert answer["status"] == "retracted"
        assert await faults(http) == []
    assert (await told(http, "/api/experiment/best", tag="plain"))["best"]["experiment_id"] != "plain-8"
