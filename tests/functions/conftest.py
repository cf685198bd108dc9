"""A tag under test: what agents and workers do in it, and what the lab answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.client import Lab
from state.experiments import Experiments
from state.ids import named_by
from state.pool import Pool
from state.records import Experiment
from tests import labs
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm

GPUS = ("host:gpu0", "host:gpu1", "host:gpu2")


def lease(e: Experiment) -> dict[str, Any]:
    """How a worker names its run."""
    return {"experiment_id": e.experiment_id, "attempt": e.attempt, "fence": e.fence}


@dataclass
class TagUnderTest:
    """The tag mar11 of a lab. Runs of `trained` and `measured` are those of the lab's workers."""

    client: httpx.AsyncClient
    process: Process
    is_sound: bool = True
    """Whether the audit has to find nothing wrong at the end of the test."""

    @property
    def lab(self) -> Lab:
        return self.process.lab

    @property
    def experiments(self) -> Experiments:
        return Experiments(self.lab)

    # -- calls

    async def told(self, path: str, **fields: Any) -> dict[str, Any]:
        return await labs.told(self.client, path, **fields)

    async def asked(self, path: str) -> dict[str, Any]:
        return await labs.asked(self.client, path)

    async def refused(self, status: int, path: str, **fields: Any) -> dict[str, Any]:
        return await labs.refused(self.client, status, path, **fields)

    # -- what is done in it

    async def open(self, **policy: Any) -> None:
        """Open the tag without a baseline, with three GPUs."""
        await labs.open_tag(self.client, base_commit="abc1234", policy={"baseline_first": False, **policy})
        for gpu in GPUS:
            await labs.add_gpu(self.client, gpu)

    async def submit(self, **changes: Any) -> str:
        submitted = await self.told("/api/experiment/submit", **labs.idea(**changes))
        return str(submitted["experiment_id"])

    async def leased(self) -> list[str]:
        """The experiments to which GPUs are lent now."""
        return sorted((await self.told("/api/pool/dispatch"))["leased"])

    async def trained(self, value: float, *, unjudged: bool = False, **changes: Any) -> dict[str, Any]:
        """The verdict on a new experiment that a worker trained."""
        return await self.measured(await self.submit(**changes), value, unjudged=unjudged)

    async def measured(self, name: str, value: float, *, unjudged: bool = False) -> dict[str, Any]:
        """The answer to a worker's report of this waiting run. Its consequences are judged."""
        answer = await self.ended(await self.begun(name), value)
        if not unjudged:
            await self.judge(name)
        return answer

    async def begun(self, name: str) -> Experiment:
        """This waiting run, as a worker begins it."""
        await self.told("/api/pool/dispatch")
        return await labs.begun(self.process, name)

    async def report(
        self, e: Experiment, value: float, gpu_class: str = "H100", **more: Any
    ) -> dict[str, Any]:
        """The answer to a worker's report of this run."""
        key = {"gpu_class": gpu_class, "budget_seconds": 300, "evaluator_hash": "e" * 16}
        return await self.told("/api/experiment/complete", **{**lease(e), **key, "val_bpb": value, **more})

    async def ended(self, e: Experiment, value: float, **more: Any) -> dict[str, Any]:
        """The same; its GPU is proven empty again."""
        answer = await self.report(e, value, **more)
        await self.free(e)
        return answer

    async def broken(self, name: str, kind: str) -> None:
        """A worker reports that this waiting run crashed. The consequences are judged."""
        e = await self.begun(name)
        await self.told("/api/experiment/crash", **lease(e), error="boom", kind=kind)
        await self.free(e)
        await self.judge(name)

    async def free(self, e: Experiment) -> None:
        """Its GPU is proven empty again."""
        assert e.gpu_id is not None
        await Pool(self.lab).release(e.gpu_id, e.experiment_id, e.fence, proven=True)

    async def judge(self, name: str) -> list[str]:
        """The steps that the event of this experiment's end causes."""
        answer = await self.told(
            "/api/experiment/judge-retests", tag=named_by(name)[1], experiment_ids=[name]
        )
        return list(answer["steps"])

    async def baseline(self, *retests: float, first: float = 1.0) -> None:
        """mar11-1, which measured `first` and then these values when it ran again."""
        await self.trained(first, commit_sha="abc1234")
        for nth, value in enumerate(retests, 2):
            await self.measured(f"mar11-1.{nth}", value)

    async def tried(self, value: float, **changes: Any) -> dict[str, Any]:
        """The verdict on a new experiment that its agent trained."""
        return await labs.tried(self.client, value, **changes)

    async def claimed(self, value: float, **changes: Any) -> dict[str, Any]:
        """The same, and its consequences are judged."""
        answer = await self.tried(value, **changes)
        await self.judge(answer["experiment_id"])
        return answer

    async def retested(self, name: str, value: float) -> dict[str, Any]:
        """The answer to a retest that its agent trained. Its consequences are judged."""
        retest = (await self.told("/api/experiment/retest", experiment_id=name, train=False))["retest_id"]
        answer = await self.told("/api/experiment/complete", experiment_id=retest, val_bpb=value)
        await self.judge(retest)
        return answer

    async def complete(self, name: str, value: float) -> dict[str, Any]:
        """The verdict on a registered experiment that its agent trained."""
        return await self.told("/api/experiment/complete", experiment_id=name, val_bpb=value)

    # -- its branches

    async def branch(self, target: int = 2, *, keep_rule: str = "auto", **traces: Any) -> None:
        """Open the tag with several traces, with room for many at once."""
        several = {"mode": "multi", "target_traces": target, "max_parallel": 50, **traces}
        policy = {"baseline_first": False, "keep_rule": keep_rule, "traces": several}
        await labs.open_tag(self.client, base_commit="abc1234", policy=policy)

    async def selected(self, **wish: Any) -> dict[str, Any]:
        answer = await self.told("/api/trace/select", tag="mar11", **wish)
        assert answer["status"] == "selected", answer
        return answer

    async def made(self, selection: dict[str, Any], **changes: Any) -> str:
        """An experiment that is registered with a selection."""
        return await labs.registered(self.client, selection_id=selection["selection_id"], **changes)

    async def grown(self, *values: float, **wish: Any) -> dict[str, Any]:
        """The verdict on the last of some experiments of these values, each made from a new selection."""
        verdicts = [await self.complete(await self.made(await self.selected(**wish)), v) for v in values]
        return verdicts[-1]

    async def trained_from(self, selection: dict[str, Any], value: float) -> str:
        """An experiment that was made from a selection and trained by a worker."""
        return str((await self.trained(value, selection_id=selection["selection_id"]))["experiment_id"])

    async def merge(self, **wish: Any) -> dict[str, Any]:
        return await self.told("/api/trace/merge", tag="mar11", **wish)

    async def traces(self) -> dict[str, dict[str, Any]]:
        """Its traces by id."""
        return {t["trace_id"]: t for t in (await self.told("/api/trace/list", tag="mar11"))["traces"]}

    async def switch(self, mode: str) -> None:
        await self.told("/api/search/set-policy", tag="mar11", policy={"traces.mode": mode})

    # -- what is known of it

    async def shown(self, name: str) -> dict[str, Any]:
        return await self.asked(f"/api/experiment/{name}")

    async def experiment(self, name: str) -> dict[str, Any]:
        return dict((await self.shown(name))["experiment"])

    async def standing(self, name: str) -> tuple[str, str | None]:
        """Status and trust of an experiment."""
        found = await self.experiment(name)
        return found["status"], found["trust"]

    async def best(self) -> dict[str, Any]:
        return dict((await self.told("/api/experiment/best", tag="mar11"))["best"])

    async def best_id(self) -> str:
        return str((await self.best())["experiment_id"])

    async def summary(self) -> dict[str, Any]:
        return await self.told("/api/report/summary", tag="mar11")

    async def counts(self, *names: str) -> tuple[int, ...]:
        """Total, kept and discarded, or the statistics of these names."""
        stats = (await self.summary())["stats"]
        return tuple(stats[name] for name in names or ("total", "kept", "discarded"))

    async def events(self, kind: str) -> list[dict[str, Any]]:
        return await labs.events_of(self.process, kind)

    async def faults(self) -> list[str]:
        """The violations that the audit finds."""
        return list((await self.told("/api/lab/audit"))["violations"])


@pytest.fixture
async def tag(client: httpx.AsyncClient, process: Process) -> AsyncIterator[TagUnderTest]:
    """The tag mar11, whose records have to agree after the test."""
    found = TagUnderTest(client, process)
    yield found
    if found.is_sound:
        assert await found.faults() == []


@pytest.fixture
async def swarm(client: httpx.AsyncClient, process: Process) -> AsyncIterator[Swarm]:
    """The swarm of an open lab, whose records have to agree after the test."""
    await labs.told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    found = Swarm(client, process)
    yield found
    assert await found.audited() == []
