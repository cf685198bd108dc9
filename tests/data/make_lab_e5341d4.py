"""Makes `lab-e5341d4.nightjar` with commit e5341d4; tests/data/README.md says how to run it.

The lab has one of everything: every status of an experiment, every kind of index, lease, queue, trace and schedule.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx

from functions.process import Process, opened
from state.backup import back_up
from state.embedded import EmbeddedRedis
from state.experiments import Experiments
from state.pool import Pool
from state.records import Experiment
from state.settings import Settings
from state.webhooks import Webhooks, new_secret
from tests.conftest import http_client
from tests.labs import add_gpu, begun, claimed, idea, open_tag, registered, told, tried

BASE = "abc1234"
REMOVED = {
    "rate_limit.per_second": 7,
    "compare_by": "delta",
    "stopping.rule": "asha",
    "budgets.extend_s": 60,
    "sampler": "random",
    "duplicates.max_trials": 3,
    "queue_target": 80,
    "evidence": "baseline",
    "dead_zone": 0.25,
    "belief.support_at": [0.7, 0.3],
    "equivalence_margin": 2,
    "allocation.temperature": 0.5,
    "indecision.streak": 9,
    "protocol_decision": "significant",
    "proposals.similarity_max": 0.9,
    "canary.probability": 0.2,
    "program.every": 25,
    "pipeline.enabled": True,
}
"""Policy values that later versions do not know."""


async def main(folder: Path) -> None:
    """Make the lab on a Redis of its own, and back it up."""
    named = {"lab": "old", "data": folder / "data"}
    with EmbeddedRedis.start(Settings.model_validate(named)) as server:
        settings = Settings.model_validate({**named, "redis_url": server.url})
        async with opened("web", settings) as process, http_client(process) as http:
            await Maker(process, http).make()
            audit = await told_by_system(process, "lab::audit")
            assert not audit["violations"], audit
            await back_up(process.lab, folder / "lab-e5341d4.nightjar")


async def told_by_system(process: Process, name: str, /, **fields: Any) -> dict[str, Any]:
    """The answer of a function that the lab itself calls."""
    return (await process.invoker.call(name, fields, process.invoker.system("test"))).model_dump()


class Maker:
    """Makes the lab, part by part."""

    def __init__(self, process: Process, http: httpx.AsyncClient) -> None:
        self.process, self.http = process, http
        self.experiments = Experiments(process.lab)

    async def make(self) -> None:
        for n in range(3):
            await add_gpu(self.http, f"host:gpu{n}", gpu_index=n)
        await self.plain()
        await self.held()
        await self.trusted()
        await self.branches()
        await self.open_runs()
        await self.gpus()
        await self.schedules()
        await self.receivers()
        await self.tokens()

    # -- parts

    async def plain(self) -> None:
        """No traces, the strict rule, every way to end, maximised; and one tag whose policy is all defaults."""
        await open_tag(self.http, "empty")
        await open_tag(
            self.http,
            "plain",
            base_commit=BASE,
            metric={"name": "accuracy", "direction": "maximize"},
            policy={"near_miss_margin": 0.01, "crash_limit": 4, "max_attempts": 3} | REMOVED,
        )
        await told(self.http, "/api/search/set-policy", tag="plain", policy={"adapt": {"window": 7}})
        patch = (
            "diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-A = 1\n+A = 2\n"
        )
        for n, value in enumerate((0.5, 0.7, 0.695, 0.6)):
            await tried(self.http, value, "plain", agent="linus", diff=patch.replace("2", str(2 + n)))
        first, late = [await registered(self.http, "plain") for _ in "12"]
        crash = {"experiment_id": first, "error": "CUDA out of memory", "kind": "oom"}
        await told(self.http, "/api/experiment/crash", **crash)
        crash = {"experiment_id": late, "error": "too slow", "kind": "timeout"}
        await told(self.http, "/api/experiment/crash", **crash)
        await self.http.post("/api/experiment/complete", json={"experiment_id": late, "val_bpb": 0.9})
        stopped = await registered(self.http, "plain")
        await told(self.http, "/api/experiment/stop", experiment_id=stopped, reason="changed my mind")
        await self.trained("plain", 0.71)
        await self.trained("plain", 0.69, gpu_class="L4")  # the best under a key of its own
        await self.measured(await self.submitted("plain"), 0.72, evaluator_hash="f" * 16)  # another evaluator
        await self.late(await self.submitted("plain"))
        await told(
            self.http, "/api/search/set-strategy", tag="plain", mode="exploit", reason="near", pin_for=2
        )
        await open_tag(self.http, "brief", policy={"stale_after_s": 0.01})
        await registered(self.http, "brief")
        await asyncio.sleep(0.1)
        await told(self.http, "/api/pool/sweep")

    async def trusted(self) -> None:
        """The rule `confirmed`: noise is known, the chain has two keeps that wait for their retests, and a rival."""
        await open_tag(self.http, "trusted", base_commit=BASE, policy={"keep_rule": "confirmed"})
        await self.trained("trusted", 1.0, commit_sha=BASE)
        for nth, value in ((2, 1.001), (3, 0.9995)):
            await self.measured(f"trusted-1.{nth}", value)
        await self.trained("trusted", 0.9)
        await self.trained("trusted", 0.8992)
        await self.trained("trusted", 0.8998)  # beaten by a keep that a retest may take back
        await self.trained("trusted", 0.8985)

    async def branches(self) -> None:
        """Several traces: extended, branched, merged, dead, closed, pending; selections of every status."""
        policy = {
            "traces.mode": "multi",
            "traces.target_traces": 4,
            "traces.max_parallel": 8,
            "traces.dead_after_crashes": 2,
        }
        await open_tag(self.http, "branches", base_commit=BASE, policy=policy)
        roots = [await self.grown(value) for value in (1.0, 0.99, 0.98)]
        await self.grown(0.97, trace_id=roots[0])
        await self.grown(1.2, trace_id=roots[0])
        merged = await told(self.http, "/api/trace/merge", tag="branches", sources=roots[1:3])
        name = await registered(self.http, "branches", selection_id=merged["selection_id"])
        await told(self.http, "/api/experiment/complete", experiment_id=name, val_bpb=0.95)
        dead = await self.grown(None)
        await self.grown(None, trace_id=dead)
        closed = await self.grown(1.05, intent="new_root")
        await told(self.http, "/api/trace/close", tag="branches", trace_id=closed)
        await told(self.http, "/api/trace/configure", tag="branches", priorities={roots[0]: 2.0})
        released = await self.selected()
        await told(self.http, "/api/trace/release", selection_id=released["selection_id"])
        await told(self.http, "/api/trace/configure", tag="branches", lease_ttl_s=0.01)
        await self.selected()
        await asyncio.sleep(0.1)
        await told(self.http, "/api/trace/sweep")
        await told(self.http, "/api/trace/configure", tag="branches", lease_ttl_s=900)
        pending = await self.selected(intent="new_root")
        await registered(self.http, "branches", selection_id=pending["selection_id"])
        await self.selected(trace_id=roots[0])
        answers = await self.http.post(
            "/api/trace/select", json={"tag": "branches"}, headers={"Idempotency-Key": "select-once"}
        )
        assert answers.is_success

    async def held(self) -> None:
        """A paused tag with a budget; its runs keep their places, one of them for one GPU alone."""
        await open_tag(self.http, "held", base_commit=BASE)
        await told(self.http, "/api/tag/budget", tag="held", gpu_seconds=10_000, runs=20)
        await self.trained("held", 1.0)
        await told(self.http, "/api/tag/pause", tag="held", reason="too dear at night")
        for n, agent in enumerate(("ada", "ada", "grace")):
            pinned = {"gpu_id": "host:gpu0"} if n == 2 else {}
            await told(self.http, "/api/experiment/submit", **idea("held", agent=agent, **pinned))

    async def open_runs(self) -> None:
        """Every slot is taken (one run, one about to, one that is to stop), an agent holds a GPU, ten wait."""
        stopping = await self.submitted("plain", agent="ada")
        await told(self.http, "/api/pool/dispatch")
        while not (await self.experiments.get(stopping)).gpu_id:
            await add_gpu(self.http, f"host:gpu{len(await Pool(self.process.lab).ids())}")
            await told(self.http, "/api/pool/dispatch")
        await self.running(stopping)
        await told(self.http, "/api/experiment/stop", experiment_id=stopping)
        [retest, *_] = await self.leased("trusted")
        await self.running(retest.experiment_id)
        await add_gpu(self.http, "agents:gpu0", gpu_name="A100")
        mine = await registered(self.http, "plain", agent="linus")
        acquired = await told(self.http, "/api/pool/acquire", experiment_id=mine)
        assert acquired["acquired"], acquired
        for agent, priority in (
            ("ada", 0),
            ("ada", 0),
            ("grace", 0),
            ("ada", 0),
            ("linus", 3),
            ("grace", 0),
            ("linus", 0),
        ):
            name = await registered(self.http, "plain", agent=agent)
            await told(self.http, "/api/gpu/train", experiment_id=name, priority=priority)
        await self.submitted("plain", agent="ada", gpu_id="host:gpu1")
        selection = await self.selected()
        await self.submitted("branches", agent="grace", selection_id=selection["selection_id"])
        answer = await self.http.post(
            "/api/experiment/register",
            json=idea("plain", agent="grace", commit_sha="fee1bad"),
            headers={"Idempotency-Key": "register-once"},
        )
        assert answer.is_success

    async def gpus(self) -> None:
        """One drained, one sick, one that nobody has heard of."""
        pool = Pool(self.process.lab)
        for name in ("drained", "sick", "silent"):
            await add_gpu(self.http, f"{name}:gpu0")
        await told(self.http, "/api/pool/drain", gpu_id="drained:gpu0")
        await pool.flag("sick:gpu0", set_={"sick": "it throttles", "good_samples": 0}, reason="it throttles")
        await pool.flag("silent:gpu0", set_={"offline": True}, reason="nobody has heard of it")

    async def schedules(self) -> None:
        """One paused, one fired by hand, one with a tick that waits; two dead letters, one of them redriven."""
        lab = self.process.lab
        now = await lab.now()
        await claimed(self.process, "pool::sweep", now, fire=[now - 1])
        await claimed(self.process, "pool::dispatch", now - 5, fire=[now - 6], missed=2, overlap="queue")
        await claimed(self.process, "pool::dispatch", now, before=now - 5, fire=[now - 1], overlap="queue")
        await told(self.http, "/api/cron/pause", function="trace::sweep", reason="looking into it")
        await told(self.http, "/api/cron/run", function="event::trim", request_id="once")
        stream = self.process.stream
        for subscription in (
            stream.events("search::adapt", "test"),
            stream.redriven("search::adapt", "test"),
        ):
            await subscription.serve()
        for event in await stream.events("search::adapt", "test").read(2, 0.1):
            await stream.events("search::adapt", "test").bury(event, "it failed too often", 5)
        [first, _] = await stream.dead(None, 10)
        await told(self.http, "/api/event/redrive", id=first.id)

    async def receivers(self) -> None:
        """One webhook that is well, one that was disabled."""
        webhooks = Webhooks(self.process.lab)
        for n in range(2):
            added = await webhooks.add(
                url=f"https://example.com/{n}",
                secret=new_secret(),
                types=("experiment.finished",) if n else None,
                tag="plain" if n else None,
                description=f"receiver {n}",
            )
            await webhooks.note(added.id, 200, "")
        await webhooks.note(added.id, 500, "it failed")
        await webhooks.disable(added.id, "it failed for too long")

    async def tokens(self) -> None:
        """From here on nobody is let in without one."""
        await told_by_system(self.process, "token::issue", name="olga", role="operator")
        ada = await told_by_system(
            self.process, "token::issue", name="ada", role="agent", tags=["plain"], lasts_s=300_000_000
        )
        await told_by_system(self.process, "token::rotate", id=ada["id"])
        old = await told_by_system(self.process, "token::issue", name="gone", role="viewer")
        await told_by_system(self.process, "token::revoke", id=old["id"])
        await told_by_system(self.process, "token::issue", name="hosts", role="worker", kind="enroll", uses=3)

    # -- what they share

    async def submitted(self, tag: str, **changes: Any) -> str:
        answer = await told(self.http, "/api/experiment/submit", **idea(tag, **changes))
        return str(answer["experiment_id"])

    async def leased(self, tag: str) -> list[Experiment]:
        """Experiments that hold a GPU and whose worker has not begun."""
        found, *_ = await self.experiments.page(tag, status="leased", limit=50)
        return list(found)

    async def trained(self, tag: str, value: float, gpu_class: str = "H100", **changes: Any) -> None:
        """A run of a worker, from its submission to its settled end."""
        await self.measured(await self.submitted(tag, **changes), value, gpu_class=gpu_class)

    async def measured(self, name: str, value: float, **key: str) -> None:
        """What a worker does with this waiting run."""
        e = await self.running(name)
        body = {"training_seconds": 120.5, "peak_vram_mb": 44_000.0, "budget_seconds": 300} | self.result(e)
        key = {"gpu_class": "H100", "evaluator_hash": "e" * 16} | key
        await told(self.http, "/api/experiment/complete", val_bpb=value, **body, **key)
        await self.release(e)
        await told(self.http, "/api/experiment/settle", experiment_id=name)

    async def late(self, name: str) -> None:
        """A run whose value comes after its time is over: it is evidence only."""
        e = await self.running(name)
        await told(self.http, "/api/experiment/crash", error="too slow", kind="timeout", **self.result(e))
        await self.http.post("/api/experiment/complete", json={"val_bpb": 0.9} | self.result(e))
        await self.release(e)

    async def running(self, name: str) -> Experiment:
        """This waiting run, begun by a worker that ticked once and told the end of its log."""
        await told(self.http, "/api/pool/dispatch")
        e = await begun(self.process, name)
        assert e.gpu_id is not None
        await self.experiments.renew(name, e.gpu_id, e.fence, 60, (1.5, 0.25))
        await self.experiments.keep_log(name, "step 1\n")
        return e

    def result(self, e: Experiment) -> dict[str, Any]:
        return {"experiment_id": e.experiment_id, "attempt": e.attempt, "fence": e.fence}

    async def release(self, e: Experiment) -> None:
        assert e.gpu_id is not None
        await Pool(self.process.lab).release(e.gpu_id, e.experiment_id, e.fence, proven=True)

    async def selected(self, **wish: Any) -> dict[str, Any]:
        answer = await told(self.http, "/api/trace/select", tag="branches", **wish)
        assert answer["status"] == "selected", answer
        return answer

    async def grown(self, value: float | None, **wish: Any) -> str:
        """The trace of a selection whose experiment is finished, without a value if it crashed."""
        selection = await self.selected(**wish)
        name = await registered(self.http, "branches", selection_id=selection["selection_id"])
        if value is None:
            await told(self.http, "/api/experiment/crash", experiment_id=name, error="boom")
        else:
            await told(self.http, "/api/experiment/complete", experiment_id=name, val_bpb=value)
        return str(selection["trace_id"])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).absolute()))
