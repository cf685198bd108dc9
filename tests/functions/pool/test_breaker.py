"""A GPU on which code crashes that ran before is taken out for a while; crashes of new code take none out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from state.pool import Pool
from state.records import Experiment, Gpu
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import add_gpu, asked, begun, idea, open_tag, registered, running, told

GPU = "host:gpu0"
TAGS = ("mar11", "other")
LIMIT = 2
WHY = "3 runs in a row have crashed on it, the last one of a baseline that ran before"


@pytest.fixture
async def process(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Process]:
    """A lab whose GPUs are probed after two crashes in a row."""
    monkeypatch.setattr("functions.pool.rules.leases.CRASH_LIMIT", LIMIT)
    async with opened("web", settings.model_copy(update={"stale_s": 10_000.0})) as found:
        yield found


@pytest.fixture
async def http(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(process) as found:
        for tag in TAGS:
            await open_tag(found, tag)
        await add_gpu(found, GPU)
        yield found


class Slot:
    """The one GPU of the lab, and its worker."""

    def __init__(self, http: httpx.AsyncClient, process: Process) -> None:
        self.http = http
        self.process = process

    async def run(self, tag: str = "mar11", **ending: Any) -> None:
        """One run from the queue to its end: a crash of this kind, else a result."""
        await self.end(await running(self.http, self.process, tag), **ending)

    async def end(self, e: Experiment, **ending: Any) -> None:
        held = {"experiment_id": e.experiment_id, "fence": e.fence}
        if ending:
            await told(self.http, "/api/experiment/crash", **held, error="boom", **ending)
        else:
            await told(self.http, "/api/experiment/complete", **held, val_bpb=0.9)
        await Pool(self.process.lab).release(GPU, e.experiment_id, e.fence, proven=True)

    async def trip(self) -> None:
        """Its runs crash, and then a baseline that ran here before."""
        await with_a_baseline(self)
        await self.probe(kind="infra")

    async def probe(self, **ending: Any) -> None:
        """The baseline of `alone` tells whether the GPU is broken."""
        wanted = await told(self.http, "/api/pool/probe", experiment_id="alone-3", gpu_id=GPU)
        assert (await told(self.http, "/api/pool/dispatch"))["leased"] == [wanted["retest_id"]]
        await self.end(await begun(self.process, wanted["retest_id"]), **ending)

    async def read(self) -> Gpu:
        return await Pool(self.process.lab).get(GPU)

    async def cool_down(self) -> dict[str, Any]:
        """As if the cool-down were over; answers the sweep after it."""
        await self.process.lab.command("HSET", self.process.lab.keys.gpu(GPU), "tripped_until", "1")
        return await told(self.http, "/api/pool/sweep")

    async def shown(self) -> dict[str, Any]:
        worker: dict[str, Any] = (await asked(self.http, "/api/pool/list"))["workers"][0]
        return worker


@pytest.fixture
def slot(http: httpx.AsyncClient, process: Process) -> Slot:
    return Slot(http, process)


async def test_a_gpu_that_is_out_gets_no_lease_and_its_experiments_wait_for_another(slot: Slot) -> None:
    await slot.trip()
    shown = await slot.shown()
    assert (shown["status"], shown["breaker"], shown["tripped"]) == ("unhealthy", "open", WHY)
    told_of = [e for e in await slot.process.stream.last(5) if e.type == "gpu.unhealthy"]
    assert [e.data["reason"] for e in told_of] == [WHY]
    await told(slot.http, "/api/experiment/submit", **idea())

    assert (await told(slot.http, "/api/pool/dispatch"))["leased"] == []
    assert (await told(slot.http, "/api/pool/sweep"))["trials"] == []
    await add_gpu(slot.http, "host:gpu1")
    assert len((await told(slot.http, "/api/pool/dispatch"))["leased"]) == 1
    assert (await told(slot.http, "/api/lab/audit"))["violations"] == []
    await slot.process.lab.command("HDEL", slot.process.lab.keys.gpu(GPU), "tripped_until")
    assert (await told(slot.http, "/api/lab/audit"))["violations"]


async def test_after_the_cool_down_runs_are_tried_and_a_success_closes_the_breaker(slot: Slot) -> None:
    await slot.trip()
    swept = await slot.cool_down()
    assert swept["trials"] == [GPU]
    assert (await slot.shown())["breaker"] == "half-open"
    await slot.run()
    gpu = await slot.read()
    assert (gpu.status, gpu.consecutive_crashes, gpu.trips) == ("idle", 0, 0)
    assert (await slot.shown())["breaker"] == "closed"


async def test_a_stopped_run_decides_nothing_and_the_next_one_is_the_trial(slot: Slot) -> None:
    await slot.trip()
    await slot.cool_down()
    e = await running(slot.http, slot.process)
    await told(slot.http, "/api/experiment/stop", experiment_id=e.experiment_id)
    gave = await told(slot.http, "/api/pool/give-back", gpu_id=GPU, fence=e.fence, reason="its run ended")

    assert gave["experiment_status"] == "stopped"
    assert (await slot.shown())["breaker"] == "half-open"
    await slot.run("other", kind="other")
    await slot.probe(kind="other")
    assert (await slot.shown())["breaker"] == "open"
    gpu = await slot.read()
    assert gpu.trips == 2
    assert gpu.tripped_until is not None
    assert 60 < gpu.tripped_until - await slot.process.lab.now() <= 120


async def test_an_operator_closes_the_breaker_at_once(slot: Slot) -> None:
    await slot.trip()
    answer = await told(slot.http, "/api/pool/drain", gpu_id=GPU, undo=True)
    assert answer["status"] == "idle"
    await slot.run("other", kind="other")
    assert (await slot.read()).status == "idle"


async def said(http: httpx.AsyncClient, experiment_id: str) -> list[str]:
    """The sentences about this experiment in `wait`, in a brief and in the lab's status."""
    waited = await asked(http, f"/api/experiment/{experiment_id}/wait?timeout=0")
    brief = await told(http, "/api/report/brief", tag="mar11")
    return [waited["next"], brief["next"], *(await asked(http, "/api/lab/status"))["hints"][:1]]


WHY_NOT: list[tuple[dict[str, Any], str]] = [
    ({"sick": "95 °C is over the limit of 90 °C"}, "is unhealthy (95 °C is over the limit of 90 °C)"),
    ({"drained": True}, "is drained"),
    ({"unproven": True}, "is still being cleared of its last run"),
    ({"leaving": "host:1:1"}, "gets no more runs: its worker ends"),
    ({"tripped": WHY, "tripped_until": 1e10}, f"is unhealthy ({WHY}) and tries a run in "),
]


async def test_who_waits_is_told_why_no_gpu_is_lent(slot: Slot) -> None:
    await told(slot.http, "/api/experiment/submit", **idea())
    for flag, why in WHY_NOT:
        await Pool(slot.process.lab).flag(GPU, set_=flag, reason="a test")
        for sentence in await said(slot.http, "mar11-1"):
            assert f"No GPU takes runs now: {GPU} {why}" in sentence
        await Pool(slot.process.lab).flag(GPU, clear=tuple(flag), reason="a test")


async def test_who_waits_for_one_gpu_or_one_class_of_them_is_told_so(slot: Slot) -> None:
    await add_gpu(slot.http, "host:gpu1", gpu_name="H200")
    first = await running(slot.http, slot.process)
    await slot.end(first)
    again = await told(slot.http, "/api/experiment/retest", experiment_id=first.experiment_id)
    pinned = await told(slot.http, "/api/experiment/submit", **idea("other", gpu_id=GPU))
    await Pool(slot.process.lab).flag(GPU, set_={"drained": True}, reason="a test")

    waited = await asked(slot.http, f"/api/experiment/{pinned['experiment_id']}/wait?timeout=0")
    assert f"It runs on {GPU} alone, which is drained" in waited["next"]
    await told(slot.http, "/api/pool/deregister", gpu_id=GPU)
    waited = await asked(slot.http, f"/api/experiment/{again['retest_id']}/wait?timeout=0")
    assert "It waits for a GPU of the class" in waited["next"]


async def test_a_tag_whose_every_run_crashes_takes_no_gpu_from_the_others(slot: Slot) -> None:
    for kind in ("other", "infra", "disk", "timeout", "killed", "oom"):
        await slot.run("other", kind=kind)
    assert ((await slot.read()).status, (await slot.shown())["breaker"]) == ("idle", "closed")
    await slot.run("mar11")
    assert (await slot.read()).consecutive_crashes == 0


async def with_a_baseline(slot: Slot) -> None:
    """The tag `alone` has a baseline that a worker has run, and then crashes until the limit is reached."""
    await open_tag(slot.http, "alone", base_commit="abc1234", policy={"baseline_repeats": 0})
    first = await told(slot.http, "/api/experiment/submit", **idea("alone", commit_sha="abc1234", diff=""))
    await told(slot.http, "/api/pool/dispatch")
    await slot.end(await begun(slot.process, first["experiment_id"]))
    for _ in range(LIMIT):
        await slot.run("alone", kind="infra")


@pytest.mark.parametrize(("ending", "status"), [({"kind": "infra"}, "unhealthy"), ({}, "idle")])
async def test_where_runs_crash_in_a_row_a_baseline_says_whether_the_gpu_is_broken(
    slot: Slot, ending: dict[str, Any], status: str
) -> None:
    await with_a_baseline(slot)
    ended = {"experiment_id": "alone-3", "gpu_id": GPU}
    before = await told(slot.http, "/api/pool/probe", experiment_id="alone-3", gpu_id="host:gone")

    several = await asyncio.gather(*(told(slot.http, "/api/pool/probe", **ended) for _ in range(4)))

    assert before["retest_id"] is None
    assert [one["retest_id"] for one in several if one["retest_id"]] == ["alone-1.2"]
    assert (await told(slot.http, "/api/pool/dispatch"))["leased"] == ["alone-1.2"]
    await slot.end(await begun(slot.process, "alone-1.2"), **ending)
    assert (await slot.read()).status == status
    assert (await told(slot.http, "/api/lab/audit"))["violations"] == []


async def test_a_probe_is_not_begun_where_it_would_tell_nothing(slot: Slot) -> None:
    await slot.run("other", kind="infra")  # one is no row
    few = await told(slot.http, "/api/pool/probe", experiment_id="other-1", gpu_id=GPU)
    await slot.run("other", kind="infra")
    without_baseline = await told(slot.http, "/api/pool/probe", experiment_id="other-2", gpu_id=GPU)
    await slot.run("other")
    await with_a_baseline(slot)
    await told(slot.http, "/api/tag/budget", tag="alone", runs=0)
    too_dear = await told(slot.http, "/api/pool/probe", experiment_id="alone-3", gpu_id=GPU)

    assert [few, without_baseline, too_dear] == [{"retest_id": None}] * 3


async def test_what_an_agent_says_takes_no_gpu_out(http: httpx.AsyncClient, process: Process) -> None:
    for _ in range(2 * LIMIT):
        borrowing = await registered(http)
        await told(http, "/api/pool/acquire", experiment_id=borrowing)
        await told(http, "/api/experiment/crash", experiment_id=borrowing, error="boom")
        await told(http, "/api/pool/release", gpu_id=GPU)
    gpu = await Pool(process.lab).get(GPU)
    assert (gpu.status, gpu.consecutive_crashes, gpu.trips) == ("idle", 0, 0)
