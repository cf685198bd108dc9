"""Workers without Redis: their runs and reports over HTTP, and refusals of other callers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.experiments import Experiments
from state.pool import Pool
from state.private import read_key
from state.records import Gpu
from tests.conftest import http_client
from tests.labs import asked, bearer, events_of, handed_over, idea, open_tag, problem, told

PATCH = "diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-X = 1\n+X = 2\n"
FAR = "far:cpu0"


@dataclass
class Lab:
    """A lab with tokens, and its participants."""

    http: httpx.AsyncClient
    process: Process
    wes: Mapping[str, str]
    """Header of the worker with the GPU `FAR`."""
    eve: Mapping[str, str]
    """Header of another worker."""
    ann: Mapping[str, str]
    """Header of an agent."""

    async def post(self, path: str, who: Mapping[str, str], **fields: Any) -> httpx.Response:
        return await self.http.post(f"/api/{path}", json=fields, headers=dict(who))

    async def ask(self, path: str, who: Mapping[str, str] | None = None, **fields: Any) -> dict[str, Any]:
        answer = await self.post(path, self.wes if who is None else who, **fields)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def submitted(self, **changes: Any) -> str:
        answer = await told(self.http, "/api/experiment/submit", **idea(diff=PATCH, **changes))
        return str(answer["experiment_id"])

    async def handed(self) -> dict[str, Any]:
        """What the worker is handed, once the lab has lent its GPU."""
        await told(self.http, "/api/pool/dispatch")
        work: dict[str, Any] = (await self.ask("pool/next", gpu_id=FAR, timeout=0))["work"]
        return work

    async def status(self, name: str) -> str:
        return str((await asked(self.http, f"/api/experiment/{name}"))["experiment"]["status"])


def lease_of(work: Mapping[str, Any]) -> dict[str, Any]:
    return {name: work[name] for name in ("experiment_id", "attempt", "fence")}


async def begun(lab: Lab, **changes: Any) -> dict[str, Any]:
    """The lease of a run that the worker has begun, with a time limit of 4 s."""
    await lab.submitted(timeout_s=4, **changes)
    lease = lease_of(await lab.handed())
    await lab.ask("gpu/begin", **lease, runner="f:1:1")
    return lease


@pytest.fixture
async def lab(process: Process) -> AsyncIterator[Lab]:
    operator = await bearer(process, "olga", "operator")
    wes, eve = await bearer(process, "wes", "worker"), await bearer(process, "eve", "worker")
    ann = await bearer(process, "ann", "agent")
    async with http_client(process) as http:
        http.headers.update(operator)
        await open_tag(http, policy={"baseline_first": False})
        found = Lab(http, process, wes, eve, ann)
        slot: dict[str, Any] = {"gpu_index": 0, "gpu_name": "cpu", "vram_mb": 0.0, "transport": "http"}
        await found.ask("pool/register", gpu_id=FAR, **slot)
        await found.ask("pool/register", eve, gpu_id="eve:cpu0", **slot)
        await found.ask("pool/leave", eve, gpu_id="eve:cpu0")
        yield found


async def test_a_worker_is_handed_all_that_a_run_needs_until_it_begins(lab: Lab) -> None:
    name = await lab.submitted(config_delta={"LR": 0.0003})

    work = await lab.handed()

    assert lease_of(work) == {"experiment_id": name, "attempt": 1, "fence": work["fence"]}
    assert base64.b64decode(work["patch_base64"]).decode() == PATCH
    assert (work["config_delta"], work["evaluator"]) == ({"LR": 0.0003}, "prepare.py")
    assert (work["metric"], work["evaluator_command"]) == ("val_bpb", None)
    assert await lab.handed() == work
    assert handed_over(lab.process.lab, FAR) == []
    assert (await lab.ask("gpu/begin", **lease_of(work), runner="far:1:1"))["begun"]
    assert await lab.handed() is None
    assert await lab.status(name) == "running"


async def test_who_asks_before_there_is_a_run_waits_for_it(lab: Lab) -> None:
    asking = asyncio.create_task(lab.ask("pool/next", gpu_id=FAR, timeout=30))
    await asyncio.sleep(0)
    name = await lab.submitted()
    await told(lab.http, "/api/pool/dispatch")
    assert (await asking)["work"]["experiment_id"] == name


async def test_a_run_is_begun_by_one_process_which_may_ask_again(lab: Lab) -> None:
    await lab.submitted()
    lease = lease_of(await lab.handed())
    answers = [await lab.ask("gpu/begin", **lease, runner=runner) for runner in ("f:1:1", "f:1:1", "f:2:2")]
    late = await lab.ask("gpu/begin", **{**lease, "fence": lease["fence"] + 1}, runner="f:1:1")
    assert [answer["begun"] for answer in (*answers, late)] == [True, True, False, False]


async def test_a_running_attempt_is_renewed_with_its_report_and_log_and_told_to_stop(lab: Lab) -> None:
    lease = await begun(lab)
    name = lease["experiment_id"]
    for fence, order in ((999, "lost"), (lease["fence"], "continue")):
        assert (await lab.ask("gpu/built", **{**lease, "fence": fence}, tree_id="t1"))["order"] == order

    orders = [await lab.ask("gpu/renew", **lease, metric=1.5, progress=0.25, log="step 1")]
    shown = await asked(lab.http, f"/api/experiment/{name}/log")
    await told(lab.http, "/api/experiment/stop", experiment_id=name)
    orders += [await lab.ask("gpu/renew", **lease), await lab.ask("gpu/renew", **{**lease, "fence": 999})]

    assert [answer["order"] for answer in orders] == ["continue", "stop", "lost"]
    assert (shown["log"], shown["metric"], shown["progress"]) == ("step 1", 1.5, 0.25)
    for _ in range(2):
        assert (await lab.ask("gpu/stopped", **lease))["status"] == "stopped"
    assert (await asked(lab.http, f"/api/experiment/{name}"))["experiment"]["val_bpb"] == 1.5


async def test_a_result_counts_once_and_only_with_the_right_fence(lab: Lab) -> None:
    lease = await begun(lab)
    name = lease["experiment_id"]

    old = {**lease, "fence": lease["fence"] + 1}
    wrong = await lab.post("experiment/complete", lab.wes, **old, val_bpb=0.5)
    first = await lab.ask("experiment/complete", **lease, val_bpb=0.9)
    again = await lab.ask("experiment/complete", **lease, val_bpb=0.9)

    assert "is old" in problem(wrong, 409)["detail"]
    assert (first["status"], again) == ("keep", {**first, "replayed": True})
    assert (await lab.ask("pool/release", gpu_id=FAR, experiment_id=name, proven=True))["released"]
    assert (await lab.ask("gpu/get", gpu_id=FAR))["worker"]["status"] == "idle"


async def test_what_a_worker_far_away_had_measured_is_trusted(lab: Lab) -> None:
    scored = {"base_commit": "abc1234", "evaluator_command": "python prepare.py"}
    await open_tag(lab.http, "scored", **scored, policy={"baseline_first": False})
    lease = await begun(lab, tag="scored")
    name = lease["experiment_id"]

    printed = await lab.post("experiment/complete", lab.wes, **lease, val_bpb=0.5)
    done = await lab.ask("experiment/complete", **lease, val_bpb=0.9, score="trusted", reported=0.5)

    assert "what its evaluator measures" in problem(printed, 422)["detail"]
    assert (done["status"], done["score"], done["reported"]) == ("keep", "trusted", 0.5)
    assert (await asked(lab.http, f"/api/experiment/{name}"))["experiment"]["score"] == "trusted"


async def test_another_worker_says_nothing_of_a_run_nor_does_an_agent(lab: Lab) -> None:
    name = await lab.submitted()
    lease = lease_of(await lab.handed())
    said: dict[str, dict[str, Any]] = {"gpu/begin": {"runner": "e:1:1"}, "gpu/built": {"tree_id": "t"}}
    said |= {"gpu/renew": {}, "gpu/stopped": {}, "experiment/complete": {"val_bpb": 0.1}}

    for path, more in said.items():
        problem(await lab.post(path, lab.eve, **lease, **more), 403)
    for path in ("pool/next", "gpu/begin", "gpu/renew", "pool/leave"):
        problem(await lab.post(path, lab.ann, gpu_id=FAR), 403)
    slot: dict[str, Any] = {"gpu_index": 0, "gpu_name": "cpu", "vram_mb": 0.0, "transport": "http"}
    own = await lab.post("pool/register", lab.ann, gpu_id="ann:cpu0", **slot)
    assert "for itself" in problem(own, 422)["detail"]

    assert await lab.status(name) == "leased"


async def test_a_run_that_was_not_begun_waits_for_another_when_its_worker_leaves(lab: Lab) -> None:
    lease = await begun(lab)
    busy = await lab.ask("pool/leave", gpu_id=FAR, ended=True)
    assert (busy, await lab.status(lease["experiment_id"])) == ({"in_pool": True}, "running")
    await lab.ask("experiment/complete", **lease, val_bpb=0.9)
    await lab.ask("pool/release", gpu_id=FAR, experiment_id=lease["experiment_id"], proven=True)
    name = await lab.submitted()
    await lab.handed()

    left = await lab.ask("pool/leave", gpu_id=FAR, ended=True)

    assert left == {"in_pool": False}
    assert await lab.status(name) == "queued"
    assert (await lab.ask("pool/leave", gpu_id=FAR, ended=True)) == {"in_pool": False}


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("gpu/renew", {"metric": 1.0}, "go together"),
    ("gpu/renew", {"metric": 1.0, "progress": 1.6}, "progress"),
    ("gpu/built", {"tree_id": "t", "patch_base64": "not base64!"}, "base64"),
    ("gpu/built", {"tree_id": "t", "patch_base64": "é"}, "base64"),
    ("pool/next", {"gpu_id": FAR, "timeout": 51}, "timeout"),
]


async def test_bad_input_changes_nothing_and_says_what_is_wrong(lab: Lab) -> None:
    name = await lab.submitted()
    lease = lease_of(await lab.handed())

    for path, fields, said in BAD:
        sent = fields if path == "pool/next" else {**lease, **fields}
        assert said in str(problem(await lab.post(path, lab.wes, **sent), 422))

    assert await lab.status(name) == "leased"


async def gpu_of(lab: Lab) -> Gpu:
    return await Pool(lab.process.lab).get(FAR)


async def pass_deadline(lab: Lab, more_s: float = 0.0) -> None:
    """As if the deadline of the run, and `more_s` seconds, had passed a moment ago."""
    store = lab.process.lab
    passed = f"{await store.now() - more_s - 0.001:.6f}"
    await store.command("HSET", store.keys.gpu(FAR), "deadline", passed, "lease_expires_at", passed)


async def sweep(lab: Lab) -> dict[str, Any]:
    return await told(lab.http, "/api/pool/sweep")


async def test_a_run_has_its_time_limit_and_one_lease_from_when_its_code_was_built(lab: Lab) -> None:
    lease = await begun(lab)
    grace_s = lab.process.settings.stale_s
    e = await Experiments(lab.process.lab).get(lease["experiment_id"])
    at_first = (await gpu_of(lab)).deadline

    for _ in range(2):
        await lab.ask("gpu/built", **lease, tree_id="t1")
    [attempt] = (await asked(lab.http, f"/api/experiment/{e.experiment_id}"))["attempts"].values()

    assert at_first == pytest.approx((e.started_at or 0) + 4 + grace_s, abs=1e-3)
    assert (await gpu_of(lab)).deadline == pytest.approx(float(attempt["built_at"]) + 4 + grace_s, abs=1e-3)


@pytest.mark.parametrize("is_swept", [False, True])
async def test_a_worker_that_renews_past_its_time_limit_loses_the_run_and_its_result_is_evidence(
    lab: Lab, is_swept: bool
) -> None:
    lease = await begun(lab)
    name = lease["experiment_id"]
    assert (await lab.ask("gpu/renew", **lease))["order"] == "continue"
    await pass_deadline(lab)

    orders = [(await lab.ask("gpu/renew", **lease))["order"] for _ in range(3)]
    await lab.ask("pool/heartbeat", gpu_id=FAR, fence=lease["fence"])
    swept = [await sweep(lab)] if is_swept else []
    problem(await lab.post("experiment/complete", lab.wes, **lease, val_bpb=0.5), 409)
    swept.append(await sweep(lab))

    assert orders == ["lost"] * 3
    assert [each["experiments"] for each in swept] == [{name: "queued"}, {}][: len(swept)]
    shown = await asked(lab.http, f"/api/experiment/{name}")
    why = "its worker went on past its time limit"
    assert (shown["attempts"]["1"]["status"], shown["attempts"]["1"]["reason"]) == ("lost", why)
    assert (await events_of(lab.process, "experiment.queued"))[-1]["reason"] == why
    assert (shown["experiment"]["status"], shown["experiment"]["val_bpb"]) == ("queued", None)
    assert [late["val_bpb"] for late in shown["late_results"]] == [0.5]
    assert (await lab.ask("gpu/renew", **lease))["order"] == "lost"


async def test_a_worker_that_goes_on_after_a_stop_has_one_lease_to_end_the_run(lab: Lab) -> None:
    lease = await begun(lab)
    await lab.ask("gpu/renew", **lease)
    store = lab.process.lab
    await store.command("HINCRBYFLOAT", store.keys.gpu(FAR), "deadline", "1000")  # a long time limit
    await told(lab.http, "/api/experiment/stop", experiment_id=lease["experiment_id"])

    first = (await lab.ask("pool/heartbeat", gpu_id=FAR, fence=lease["fence"]))["action"]  # counts as told
    latest_s, deadline = await store.now() + lab.process.settings.stale_s, (await gpu_of(lab)).deadline
    orders = [(await lab.ask("gpu/renew", **lease))["order"] for _ in range(2)]
    assert 0 < (deadline or 0.0) <= latest_s
    assert (await gpu_of(lab)).deadline == deadline
    await pass_deadline(lab)
    orders.append((await lab.ask("gpu/renew", **lease))["order"])
    swept = await sweep(lab)

    assert (first, orders) == ("stop", ["stop", "stop", "lost"])
    assert swept["experiments"] == {lease["experiment_id"]: "stopped"}
    [ended] = await events_of(lab.process, "experiment.finished")
    assert (ended["status"], ended["reason"]) == ("stopped", "its worker went on after it was told to stop")


async def test_a_result_that_waited_while_the_lab_was_off_is_not_past_the_deadline(lab: Lab) -> None:
    lease = await begun(lab)
    await pass_deadline(lab)
    store = lab.process.lab
    renewed_last = f"{await store.now() - 300:.6f}"  # long before the deadline
    await store.command("HSET", store.keys.gpu(FAR), "lease_expires_at", renewed_last)

    done = await lab.ask("experiment/complete", **lease, val_bpb=0.5)

    assert done["status"] == "keep"


async def test_heartbeats_keep_no_run_that_its_worker_does_not_begin(lab: Lab) -> None:
    name = await lab.submitted()
    lease = lease_of(await lab.handed())
    await lab.ask("pool/heartbeat", gpu_id=FAR, fence=lease["fence"])
    held = await gpu_of(lab)
    await pass_deadline(lab)

    await lab.ask("pool/heartbeat", gpu_id=FAR, fence=lease["fence"])
    swept = await sweep(lab)

    at_most_s = (held.deadline or 0.0) - (held.leased_at or 0.0)
    assert at_most_s == pytest.approx(2 * lab.process.settings.stale_s, abs=1e-3)
    assert swept["experiments"] == {name: "queued"}


async def test_the_lab_s_own_key_speaks_for_its_own_slots_alone(lab: Lab) -> None:
    key = {"authorization": f"Bearer {read_key(lab.process.settings, 'worker')}"}
    slot: dict[str, Any] = {"gpu_index": 0, "gpu_name": "cpu", "vram_mb": 0.0}
    mine = await lab.ask("pool/register", key, gpu_id="host:cpu0", **slot)

    of_another = await lab.post("pool/heartbeat", key, gpu_id=FAR)
    of_the_lab = await lab.post("pool/heartbeat", lab.wes, gpu_id="host:cpu0")

    assert mine["worker"]["owner"] is None
    assert "registered by 'wes'" in problem(of_another, 403)["detail"]
    assert "one of the lab's own" in problem(of_the_lab, 403)["detail"]
    assert (await lab.post("pool/heartbeat", key, gpu_id="host:cpu0")).status_code == 200
    for path in ("policy/set", "tag/pause", "pool/drain", "token/list"):
        assert (await lab.post(path, key)).status_code in (403, 404)


async def test_a_worker_s_process_is_shown_and_names_a_base_commit_for_the_lab_s_own_alone(lab: Lab) -> None:
    key = {"authorization": f"Bearer {read_key(lab.process.settings, 'worker')}"}
    head = {"repository_head": "fedcba9"}
    await lab.ask("pool/announce", lab.wes, process="keeper@h:7", **head)
    of_a_stranger = await lab.process.presence.repository_head()

    await lab.ask("pool/announce", key, process="keeper@h:7", **head)

    shown = {p["name"] for p in (await asked(lab.http, "/api/lab/status"))["processes"]}
    assert {"keeper@h:7/wes", "keeper@h:7"} < shown
    assert (of_a_stranger, await lab.process.presence.repository_head()) == (None, "fedcba9")
    await lab.ask("pool/announce", key, process="keeper@h:7", ended=True)
    assert "keeper@h:7" not in {p["name"] for p in (await asked(lab.http, "/api/lab/status"))["processes"]}


async def test_a_run_whose_patch_is_damaged_ends_and_holds_nobody_up(lab: Lab) -> None:
    name = await lab.submitted()
    await told(lab.http, "/api/pool/dispatch")
    redis, digest = lab.process.lab, (await Experiments(lab.process.lab).get(name)).diff_id
    await redis.command("SET", redis.keys("diffs", digest or ""), "another")

    assert await lab.handed() is None

    assert (await Experiments(redis).get(name)).status == "lost"
    assert (await lab.ask("gpu/get", gpu_id=FAR))["worker"]["status"] == "idle"
