"""Bindings of one process take the events that they want, and pass over the others."""

from __future__ import annotations

import asyncio

import pytest

from functions.kernel.process.lifecycle import Process
from state.events import Event
from state.stream import Subscription


async def emit(process: Process, kind: str) -> str:
    fields = {"type": kind, "time": "", "tag": "mar11", "subject": "mar11", "data": "{}", "trace": ""}
    flat = [word for pair in fields.items() for word in pair]
    return str(await process.lab.command("XADD", process.lab.keys("events"), "*", *flat))


async def group(process: Process, name: str = "probe::hear", consumer: str = "one") -> Subscription:
    """A binding that is served."""
    found = process.stream.events(name, consumer)
    assert await found.serve()
    return found


async def lag(process: Process, name: str) -> tuple[int | None, int]:
    """Undelivered and unacknowledged events of a binding."""
    found = (await process.stream.lags())["bindings"][name]
    return found["undelivered"], found["unacknowledged"]


async def test_a_binding_takes_what_it_wants_and_passes_over_the_rest(process: Process) -> None:
    sub = await group(process)
    ids = [await emit(process, kind) for kind in ("gpu.idle", "tag.created", "gpu.idle", "tag.created")]

    taken = await sub.read(10, 1.0, lambda event: event.type == "gpu.idle")

    assert [event.id for event in taken] == [ids[0], ids[2]]
    assert await lag(process, sub.group) == (0, 2)
    await sub.done([event.id for event in taken])
    assert await lag(process, sub.group) == (0, 0)


async def test_a_binding_that_wants_nothing_is_not_behind(process: Process) -> None:
    sub = await group(process)
    await emit(process, "tag.created")

    for _ in range(3):
        assert await sub.read(10, 0.2, lambda _: False) == []

    assert await lag(process, sub.group) == (0, 0)


async def test_of_two_consumers_one_takes_each_event(process: Process) -> None:
    one, two = await group(process), await group(process, consumer="two")
    await asyncio.gather(one.read(10, 0.01), two.read(10, 0.01))
    ids = [await emit(process, "gpu.idle") for _ in range(5)]

    mine, theirs = await asyncio.gather(one.read(3, 1.0), two.read(3, 1.0))
    rest = [*await one.read(10, 0.2), *await two.read(10, 0.2)]

    assert sorted(event.id for event in (*mine, *theirs, *rest)) == ids
    assert await lag(process, one.group) == (0, 5)


async def test_the_bindings_of_a_process_read_an_event_once(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    subs = [await group(process, f"probe::hear{n}") for n in range(5)]
    await emit(process, "gpu.idle")
    follow, read = process.stream.follow, list[str]()

    async def noted(entry_id: str, wait_s: float, count: int) -> list[Event]:
        read.append(entry_id)
        return await follow(entry_id, wait_s, count)

    monkeypatch.setattr(process.stream, "follow", noted)

    taken = await asyncio.gather(*(sub.read(10, 1.0) for sub in subs))

    assert [len(events) for events in taken] == [1] * 5
    assert read == ["0-0"]
