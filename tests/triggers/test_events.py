"""Event bindings: at least once, retried with backoff, buried when hopeless; none disturbs another."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from functions.kernel.contract import Call, Every, Function, On, Request, Response, function
from functions.kernel.invoke import Invoker
from functions.kernel.process.lifecycle import Process
from functions.kernel.process.running import ended
from functions.kernel.rules.firings import Overlap
from state.errors import Unavailable
from state.events import Event
from state.pool import Pool
from state.records import Gpu
from state.schedules import Firings
from state.settings import Settings
from state.stream import DeadLetter
from tests.labs import claimed, eventually, gone, settled
from triggers.delivery import _keep, run_binding
from triggers.events import AT_ONCE, bindings


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"silent_s": 0.2})


@pytest.fixture(autouse=True)
def _retries_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triggers.delivery.FIRST_BACKOFF_S", 0.05)


class Fact(Request):
    tag: str | None = None
    n: int = 0
    gpu_id: str | None = None
    scheduled: datetime | None = None
    fired: float | None = None
    missed: int | None = None
    by_hand: bool | None = None


class Facts(Fact):
    experiment_ids: tuple[str, ...] = ()


class Done(Response):
    pass


class Ears:
    """What the functions of a test have heard, and what they do then."""

    def __init__(self) -> None:
        self.heard: list[Fact] = []
        self.at: list[float] = []
        self.callers: list[str] = []
        self.then: Callable[[Fact], None] = lambda fact: None


async def listen(request: Fact, call: Call, ears: Ears) -> Done:
    """Hear."""
    ears.heard.append(request)
    ears.at.append(time.monotonic())
    ears.callers.append(call.caller.name)
    ears.then(request)
    return Done()


async def gather(request: Facts, call: Call, ears: Ears) -> Done:
    """Hear of a burst at once."""
    return await listen(request, call, ears)


def hearing(name: str, trigger: On | Every) -> Function[Any, Any]:
    return function(name, trigger, role="operator")(listen)


def at_work(process: Process, ears: Ears, *functions: Function[Any, Any], consumer: str = "one") -> Process:
    invoker = Invoker({f.name: f for f in functions}, [ears])
    return replace(process, name=consumer, invoker=invoker)


@asynccontextmanager
async def delivering(
    process: Process, *pairs: tuple[Ears, Function[Any, Any]], consumer: str = "one"
) -> AsyncIterator[None]:
    """Deliver to these functions meanwhile."""
    stop = asyncio.Event()
    tasks = []
    for ears, declared in pairs:
        mine = at_work(process, ears, declared, consumer=consumer)
        tasks += [
            asyncio.create_task(run_binding(binding, mine.settings, stop))
            for binding in bindings({declared.name: declared}, mine)
        ]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def emit(process: Process, kind: str, tag: str = "mar11", **data: Any) -> str:
    fields = {"type": kind, "time": "", "tag": tag, "subject": tag, "data": json.dumps(data), "trace": ""}
    flat = [word for pair in fields.items() for word in pair]
    return str(await process.lab.command("XADD", process.lab.keys("events"), "*", *flat))


async def letters(process: Process) -> list[DeadLetter]:
    return await process.stream.dead_letters(None, None)


async def test_every_event_reaches_its_function_with_its_facts(process: Process) -> None:
    ears = Ears()
    await emit(process, "experiment.finished", n=1)  # before anybody listened

    async with delivering(process, (ears, hearing("probe::hear", On("experiment.finished")))):
        await eventually(lambda: len(ears.heard) == 1)
        await emit(process, "experiment.finished", n=2)
        await emit(process, "experiment.queued", n=3)  # not asked for
        await emit(process, "experiment.finished", n=4, unknown="to the request")
        await settled(process, "probe::hear")

    assert [f.n for f in ears.heard] == [1, 2, 4]
    assert {f.tag for f in ears.heard} == {"mar11"}
    assert set(ears.callers) == {"event:experiment.finished"}


@pytest.mark.parametrize(("debounce", "calls"), [("tag", 3), ("lab", 1), (None, 30)])
async def test_a_burst_is_collapsed_as_declared(process: Process, debounce: Any, calls: int) -> None:
    ears = Ears()
    for n in range(30):
        await emit(process, "experiment.finished", tag=f"t{n % 3}", n=n)

    async with delivering(
        process, (ears, hearing("probe::hear", On("experiment.finished", debounce=debounce)))
    ):
        await settled(process, "probe::hear")

    assert len(ears.heard) == calls
    last = {f.tag: f.n for f in ears.heard}
    assert last == ({"t0": 27, "t1": 28, "t2": 29} if debounce != "lab" else {"t2": 29})


async def test_a_call_for_a_burst_has_its_experiments_and_a_bad_one_fails_alone(process: Process) -> None:
    ears = Ears()

    def fail(fact: Fact) -> None:
        assert isinstance(fact, Facts)
        if "e1" in fact.experiment_ids:
            raise ArithmeticError("not this one")

    ears.then = fail
    for name in ("e0", "e1", "e2", "e0"):
        await emit(process, "experiment.finished", experiment_id=name)
    await emit(process, "experiment.finished", n=7)
    burst = function(
        "probe::hear", On("experiment.finished", debounce="tag", max_deliveries=3), role="operator"
    )

    async with delivering(process, (ears, burst(gather))):
        await settled(process, "probe::hear")

    heard = [[*f.experiment_ids] for f in ears.heard if isinstance(f, Facts)]
    assert heard[:2] == [["e0", "e1", "e2"], []]
    assert sorted(heard[2:]) == [["e0"], ["e0"], ["e1"], ["e1"], ["e2"]]
    (letter,) = await letters(process)
    assert letter.event["data"] == {"experiment_id": "e1"}


@pytest.mark.parametrize("error", [ArithmeticError("no"), Unavailable("no", retry_after=1)], ids=type)
async def test_a_failing_function_is_retried_ever_later_then_buried_while_others_go_on(
    process: Process, error: Exception
) -> None:
    bad, good = Ears(), Ears()

    def fail(fact: Fact) -> None:
        if fact.n == 7:
            raise error

    bad.then = fail
    pairs = [
        (bad, hearing("probe::bad", On("gpu.idle", max_deliveries=3))),
        (good, hearing("probe::good", On("gpu.idle"))),
    ]
    await emit(process, "gpu.idle", n=7)
    await emit(process, "gpu.idle", n=8)

    async with delivering(process, *pairs):
        await settled(process, "probe::bad", "probe::good")

    tries = [at for fact, at in zip(bad.heard, bad.at, strict=True) if fact.n == 7]
    assert sorted(f.n for f in bad.heard) == [7, 7, 7, 8]
    assert tries[1] - tries[0] >= 0.045
    assert tries[2] - tries[1] >= 0.095
    assert [f.n for f in good.heard] == [7, 8]
    (letter,) = await letters(process)
    assert (letter.binding, letter.deliveries) == ("probe::bad", 3)
    assert letter.error == f"{type(error).__name__}: no"
    assert letter.event["type"] == "gpu.idle"


async def test_an_entry_of_a_dead_consumer_is_claimed_by_another(process: Process) -> None:
    ears = Ears()
    declared = hearing("probe::hear", On("gpu.idle"))
    await emit(process, "gpu.idle", n=1)
    dead = process.stream.events("probe::hear", "dead")
    await dead.serve()
    begun = time.monotonic()
    assert len(await dead.read(10, 1.0)) == 1

    async with delivering(process, (ears, declared), consumer="alive"):
        await settled(process, "probe::hear")

    assert [f.n for f in ears.heard] == [1]
    assert ears.at[0] - begun >= 0.19


async def test_an_entry_of_a_process_that_died_on_this_host_is_claimed_without_waiting_for_its_silence(
    process: Process,
) -> None:
    patient = replace(process, settings=process.settings.model_copy(update={"silent_s": 3600.0}))
    ears = Ears()
    declared = hearing("probe::hear", On("gpu.idle"))
    for n, name in enumerate([process.name, gone("events")]):
        consumer = process.stream.events("probe::hear", name)
        await consumer.serve()
        await emit(process, "gpu.idle", n=n)
        assert len(await consumer.read(1, 1.0)) == 1

    async with delivering(patient, (ears, declared), consumer="alive"):
        await eventually(lambda: bool(ears.heard))
        while (await process.stream.lags())["bindings"]["probe::hear"]["unacknowledged"] > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        pending = await process.stream.events("probe::hear", "-").pending()

    assert [f.n for f in ears.heard] == [1]
    assert [entry.consumer for entry in pending] == [process.name]


async def test_an_entry_that_is_worked_on_stays_its_consumers(process: Process) -> None:
    await emit(process, "gpu.idle")
    sub = process.stream.events("probe::hear", "slow")
    await sub.serve()
    (event,) = await sub.read(1, 1.0)
    await asyncio.sleep(0.3)
    (before,) = await sub.pending()
    keeper = asyncio.create_task(_keep(sub, [event.id], 0.01))

    await asyncio.sleep(0.05)
    after = before
    while after.idle_s >= before.idle_s:
        (after,) = await sub.pending()
    await ended(keeper)

    assert before.idle_s >= 0.29
    assert (after.consumer, after.deliveries) == ("slow", 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"what": "is this"},
        {"type": "gpu.idle", "time": "", "tag": "", "subject": "", "data": "{no json"},
        {"type": "gpu.idle", "time": "", "tag": "", "subject": "", "data": "[1]"},
    ],
)
async def test_a_poisoned_entry_is_buried_and_stops_nothing(process: Process, fields: dict[str, str]) -> None:
    ears = Ears()
    flat = [word for pair in fields.items() for word in pair]
    await process.lab.command("XADD", process.lab.keys("events"), "*", *flat)
    await emit(process, "gpu.idle", n=2)

    async with delivering(process, (ears, hearing("probe::hear", On("gpu.idle")))):
        await settled(process, "probe::hear")

    assert [f.n for f in ears.heard] == [2]
    (letter,) = await letters(process)
    assert letter.event["data"] == fields


async def test_a_firing_for_each_gpu_fires_once_for_each(process: Process) -> None:
    ears = Ears()
    for name in ("g0", "g1"):
        await Pool(process.lab).register(Gpu(gpu_id=name, gpu_index=0, gpu_name="H100", vram_mb=1))

    async with delivering(process, (ears, hearing("probe::tick", Every(60, each="gpu")))):
        await firing(process)
        await eventually(lambda: len(ears.heard) == 2)

    assert [f.gpu_id for f in ears.heard] == ["g0", "g1"]


async def firing(process: Process, overlap: str = "skip") -> None:
    """As if the clock had fired probe::tick."""
    look = await process.schedules.look("probe::tick")
    now, before = look.now, look.firings.until
    assert await claimed(process, "probe::tick", now, before=before, fire=now, overlap=overlap) == "claimed"


async def handled(process: Process, fired: int) -> Firings:
    """Wait until so many firings were fired and handled."""
    deadline = time.monotonic() + 30
    while True:
        look = await process.schedules.look("probe::tick")
        if look.firings.fired == fired and not look.handled + look.waiting:
            return look.firings
        assert time.monotonic() < deadline, look
        await asyncio.sleep(0.01)


class Slow(Ears):
    """A handler that works until it may end."""

    def __init__(self) -> None:
        super().__init__()
        self.end = asyncio.Event()
        self.at_work = self.most_at_work = self.done = 0

    async def work(self) -> None:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        await self.end.wait()
        self.at_work -= 1
        self.done += 1


async def work(request: Fact, slow: Slow) -> Done:
    """Work."""
    await slow.work()
    return Done()


def working(overlap: Overlap) -> Function[Any, Any]:
    return function("probe::tick", Every(60, overlap=overlap), role="operator")(work)


@pytest.mark.parametrize(("overlap", "fired"), [("skip", 1), ("queue", 2)])
async def test_of_the_firings_beside_an_unhandled_one_none_or_one_waits_and_runs_after_it(
    process: Process, overlap: Overlap, fired: int
) -> None:
    slow = Slow()

    async with (
        delivering(process, (slow, working(overlap))),
        delivering(process, (slow, working(overlap)), consumer="two"),
    ):
        await firing(process, overlap)
        await eventually(lambda: slow.at_work == 1)
        for _ in range(3):
            await firing(process, overlap)
        meanwhile = await process.schedules.look("probe::tick")
        slow.end.set()
        first = await handled(process, fired)
        await firing(process, overlap)
        second = await handled(process, fired + 1)

    assert (meanwhile.waiting, meanwhile.handled) == (fired - 1, 1)
    assert first.skipped == second.skipped == 4 - fired
    assert (slow.done, slow.most_at_work) == (fired + 1, 1)


async def test_no_more_firings_run_beside_each_other_than_a_process_can_bear(process: Process) -> None:
    slow = Slow()

    async with delivering(process, (slow, working("allow"))):
        for _ in range(AT_ONCE + 2):
            await firing(process, "allow")
        await eventually(lambda: slow.at_work == AT_ONCE)
        slow.end.set()
        await handled(process, AT_ONCE + 2)

    assert (slow.done, slow.most_at_work) == (AT_ONCE + 2, AT_ONCE)


@pytest.mark.parametrize("overlap", ["skip", "queue"])
async def test_a_handler_that_died_holds_firings_up_until_another_took_over(
    process: Process, overlap: Overlap
) -> None:
    ears = Ears()
    dead = process.schedules.subscription("probe::tick", "dead")
    await dead.serve()
    await firing(process, overlap)
    assert len(await dead.read(10, 1.0)) == 1
    for _ in range(2):
        await firing(process, overlap)
    declared = hearing("probe::tick", Every(60, overlap=overlap))

    async with delivering(process, (ears, declared), consumer="alive"):
        firings = await handled(process, 1 if overlap == "skip" else 2)

    assert len(ears.heard) == firings.fired
    assert firings.skipped == 3 - firings.fired


@pytest.mark.parametrize("overlap", ["skip", "queue"])
async def test_a_firing_that_always_fails_is_buried_and_the_next_goes_ahead(
    process: Process, overlap: Overlap
) -> None:
    ears = Ears()

    def fail_at_first(fact: Fact) -> None:
        if len(ears.heard) <= 3:
            raise ValueError("not yet")

    ears.then = fail_at_first
    await firing(process, overlap)
    await firing(process, overlap)

    async with delivering(process, (ears, hearing("probe::tick", Every(60, overlap=overlap)))):
        await handled(process, 1 if overlap == "skip" else 2)
        if overlap == "skip":
            await firing(process, overlap)
        await handled(process, 2)

    assert len(ears.heard) == 4
    (letter,) = await letters(process)
    assert letter.error == "ValueError: not yet"


async def test_a_dead_firing_is_delivered_again_where_its_function_hears_events_too(process: Process) -> None:
    ears = Ears()
    broken = True

    def fail_while_broken(fact: Fact) -> None:
        if broken:
            raise ValueError("not yet")

    ears.then = fail_while_broken
    both = function("probe::tick", On("gpu.idle"), Every(60), role="operator")(listen)
    call = process.invoker.system("operator")

    async with delivering(process, (ears, both)):
        await firing(process)
        await eventually(lambda: len(ears.heard) == 3)
        await handled(process, 1)
        broken = False
        await process.invoker.call("event::redrive", {"all": True}, call)
        await eventually(lambda: len(ears.heard) == 4)

    assert len({fact.scheduled for fact in ears.heard}) == 1
    assert await letters(process) == []


async def test_a_function_that_asks_for_them_gets_the_times_of_its_firing(process: Process) -> None:
    ears = Ears()
    declared = hearing("probe::tick", Every(60))
    now = (await process.schedules.look("probe::tick")).now

    async with delivering(process, (ears, declared)):
        await claimed(process, "probe::tick", now, fire=now - 3.25, missed=2)
        await handled(process, 1)
        await process.schedules.run("probe::tick", "skip", None)
        await eventually(lambda: len(ears.heard) == 2)

    by_clock, by_hand = ears.heard
    assert by_clock.scheduled == datetime.fromtimestamp(now - 3.25, UTC)
    assert by_clock.fired is not None
    assert by_clock.fired >= now
    assert (by_clock.missed, by_clock.by_hand) == (2, False)
    assert (by_hand.missed, by_hand.by_hand) == (0, True)


async def test_a_dead_letter_is_delivered_again_to_its_own_function_only(process: Process) -> None:
    bad, good = Ears(), Ears()

    def fail_while_broken(fact: Fact) -> None:
        if broken:
            raise ValueError("not yet")

    broken, bad.then = True, fail_while_broken
    pairs = [
        (bad, hearing("probe::bad", On("gpu.idle", max_deliveries=1))),
        (good, hearing("probe::good", On("gpu.idle"))),
    ]
    await emit(process, "gpu.idle", n=1)
    await emit(process, "gpu.idle", n=2)
    call = process.invoker.system("operator")

    async with delivering(process, *pairs):
        await settled(process, "probe::bad", "probe::good")
        dead = (await process.invoker.call("event::dead", {}, call)).model_dump()
        tried = await process.invoker.call("event::redrive", {"all": True, "dry_run": True}, call)
        broken = False
        await process.invoker.call("event::redrive", {"id": dead["dead"][0]["id"]}, call)
        await eventually(lambda: len(bad.heard) == 3)

    assert [letter["binding"] for letter in dead["dead"]] == ["probe::bad"] * 2
    assert sorted(letter["event"]["data"]["n"] for letter in dead["dead"]) == [1, 2]
    assert tried.model_dump()["redriven"] == [letter["id"] for letter in dead["dead"]]
    assert [f.n for f in bad.heard] == [1, 2, dead["dead"][0]["event"]["data"]["n"]]
    assert [f.n for f in good.heard] == [1, 2]
    discarded = await process.invoker.call("event::discard", {"id": dead["dead"][1]["id"]}, call)
    assert discarded.model_dump() == {
        "discarded": [dead["dead"][1]["id"]],
        "dry_run": False,
    }
    assert await letters(process) == []


async def test_a_group_that_vanished_is_made_again(process: Process) -> None:
    ears = Ears()
    await emit(process, "gpu.idle", n=1)

    async with delivering(process, (ears, hearing("probe::hear", On("gpu.idle")))):
        await settled(process, "probe::hear")
        await process.lab.command("XGROUP", "DESTROY", process.lab.keys("events"), "probe::hear")
        await emit(process, "gpu.idle", n=2)
        await eventually(lambda: 2 in [f.n for f in ears.heard])

    assert [f.n for f in ears.heard] == [1, 1, 2]  # it begins at the beginning


async def test_what_is_left_of_a_batch_at_the_end_goes_to_the_next_process(process: Process) -> None:
    ears = Ears()
    stop = asyncio.Event()
    ears.then = lambda fact: stop.set()
    declared = hearing("probe::hear", On("gpu.idle"))
    for n in range(3):
        await emit(process, "gpu.idle", n=n)
    mine = at_work(process, ears, declared)
    live = bindings({declared.name: declared}, mine)[0]

    await run_binding(live, mine.settings, stop)
    heard_first = [f.n for f in ears.heard]
    async with delivering(process, (ears, declared), consumer="two"):
        await settled(process, "probe::hear")

    assert heard_first == [0]
    assert [f.n for f in ears.heard] == [0, 1, 2]


async def test_of_two_consumers_one_takes_each_event(process: Process) -> None:
    one, two = [process.stream.events("probe::hear", name) for name in ("one", "two")]
    for consumer in (one, two):
        await consumer.serve()
    await asyncio.gather(one.read(10, 0.01), two.read(10, 0.01))
    ids = [await emit(process, "gpu.idle") for _ in range(5)]

    mine, theirs = await asyncio.gather(one.read(3, 1.0), two.read(3, 1.0))
    rest = [*await one.read(10, 0.2), *await two.read(10, 0.2)]

    assert sorted(event.id for event in (*mine, *theirs, *rest)) == ids


async def test_the_bindings_of_a_process_read_an_event_once(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    subs = [process.stream.events(f"probe::hear{n}", "one") for n in range(5)]
    for sub in subs:
        await sub.serve()
    await emit(process, "gpu.idle")
    follow, read = process.stream.follow, list[str]()

    async def noted(entry_id: str, wait_s: float, count: int) -> list[Event]:
        read.append(entry_id)
        return await follow(entry_id, wait_s, count)

    monkeypatch.setattr(process.stream, "follow", noted)

    taken = await asyncio.gather(*(sub.read(10, 1.0) for sub in subs))

    assert [len(events) for events in taken] == [1] * 5
    assert read == ["0-0"]
