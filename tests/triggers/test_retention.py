"""Retention: old events go, unread ones never do; groups and consumers that are gone go too."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.settings import Settings
from state.stream import TRIM_STEP, UNSERVED_S, Subscription
from tests.labs import open_tag, refused, told

DAY_MS = 86_400_000


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"keep_events_days": 7.0})


@pytest.fixture(autouse=True)
def few_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the newest ten events."""
    monkeypatch.setattr("functions.lab.events.KEPT", 10)


async def past(process: Process, count: int, days: float, tag: str = "mar11") -> list[str]:
    """Events of so many days ago, each a millisecond after the one before; answers their ids."""
    began = int(await process.lab.now() * 1000 - days * DAY_MS)
    key, ids = process.lab.keys("events"), [f"{began + n}-0" for n in range(count)]
    for nth, entry_id in enumerate(ids):
        fields = {"type": "gpu.idle", "time": "", "tag": tag, "subject": tag, "data": json.dumps({"n": nth})}
        flat = [word for pair in fields.items() for word in pair]
        await process.lab.command("XADD", key, entry_id, *flat)
    return ids


async def group(process: Process, name: str = "probe::hear", consumer: str = "one") -> Subscription:
    """A binding that is served."""
    found = process.stream.events(name, consumer)
    assert await found.serve()
    return found


async def trim(process: Process) -> dict[str, Any]:
    call = process.invoker.system("clock")
    return (await process.invoker.call("event::trim", {}, call)).model_dump()


async def kept(process: Process) -> list[str]:
    return [e.id for e in await process.stream.after("0", 100_000)]


async def stamp(process: Process, sub: Subscription, ago_s: float) -> None:
    """As if a binding had been served so long ago, while others were served all along."""
    member = f"events {sub.group}"
    await process.lab.command(
        "ZADD", process.lab.keys("bindings"), repr(await process.lab.now() - ago_s), member
    )


async def test_an_event_goes_when_it_is_old_and_beyond_the_newest(process: Process) -> None:
    old, young = await past(process, 25, days=8), await past(process, 5, days=1)

    answer = await trim(process)

    assert await kept(process) == old[20:] + young  # the ten newest
    assert (answer["dropped"], answer["kept"], answer["held_back_by"]) == (20, 10, None)


async def test_an_event_that_a_group_has_not_read_or_acknowledged_stays(process: Process) -> None:
    old = await past(process, 30, days=8)
    slow, fast = await group(process, "probe::slow"), await group(process, "probe::fast")
    await slow.done([e.id for e in await slow.read(5, 1.0)])
    read = [e.id for e in await fast.read(100, 1.0)]
    await fast.done(read[:8] + read[9:])

    first = await trim(process)
    kept_for_slow = await kept(process)
    unread = [e.id for e in await slow.read(100, 1.0)]
    await slow.done(unread)
    second = await trim(process)

    assert kept_for_slow == unread == old[5:]
    assert first["held_back_by"]["binding"] == "probe::slow"
    assert await kept(process) == old[8:]
    assert second["held_back_by"] == {"binding": "probe::fast", "since": old[8]}
    assert [e.id for e in await fast.claim([old[8]], 0)] == [old[8]]


async def test_a_group_without_a_binding_is_dropped_after_seven_days_and_holds_nothing(
    process: Process,
) -> None:
    await past(process, 30, days=8)
    await group(process, "probe::lives")
    await (await group(process, "probe::lives")).read(100, 1.0)
    lives = await group(process, "probe::lives")
    await lives.done([e.entry_id for e in await lives.pending()])
    gone = await group(process, "probe::gone")

    await stamp(process, gone, UNSERVED_S - 60)
    before = await trim(process)
    await stamp(process, gone, UNSERVED_S + 60)
    after = await trim(process)

    assert (before["dropped"], before["bindings_dropped"]) == (0, [])
    assert (after["dropped"], after["bindings_dropped"]) == (20, ["probe::gone"])
    assert set((await process.stream.lags())["bindings"]) == {"probe::lives"}


async def test_days_in_which_the_lab_was_off_do_not_count(process: Process) -> None:
    old = await past(process, 30, days=20)
    away, back = await group(process, "probe::away"), await group(process, "probe::back")
    for sub in (away, back):
        await stamp(process, sub, UNSERVED_S + 86400)

    await back.serve()
    answer = await trim(process)

    assert answer["bindings_dropped"] == []
    assert await kept(process) == old


async def test_consumers_that_are_gone_are_forgotten_unless_they_left_work(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state.stream.SILENT_S", 0.0)
    await past(process, 2, days=1)
    idle, busy = await group(process, consumer="idle"), await group(process, consumer="busy")
    (first,) = await idle.read(1, 1.0)
    await idle.done([first.id])
    (second,) = await busy.read(1, 1.0)
    await asyncio.sleep(0.01)  # both are silent for longer than no time at all

    answer = await trim(process)

    consumers = await process.lab.command("XINFO", "CONSUMERS", idle.stream, idle.group)
    assert [c[c.index("name") + 1] for c in consumers] == ["busy"]
    assert answer["consumers_dropped"] == 1
    assert [e.id for e in await idle.claim([second.id], 0)] == [second.id]


async def test_redriven_events_and_firings_go_once_they_are_handled(process: Process) -> None:
    redriven = process.stream.redriven("probe::hear", "one")
    firings = process.schedules.subscription("probe::hear", "one")
    for sub in (redriven, firings):
        await sub.serve()
        for _ in range(3):
            await process.lab.command("XADD", sub.stream, "*", "type", "t")
        await sub.done([e.id for e in await sub.read(2, 1.0)])

    await trim(process)

    for sub in (redriven, firings):
        assert await process.lab.command("XLEN", sub.stream) == 1
        assert len(await sub.read(2, 1.0)) == 1


async def test_a_long_stream_is_trimmed_in_short_steps(process: Process) -> None:
    old = await past(process, 2 * TRIM_STEP + 300, days=8)

    answer = await trim(process)

    assert answer["dropped"] == 2 * TRIM_STEP + 290
    assert await kept(process) == old[-10:]


# -- event::list


async def paged(client: httpx.AsyncClient, **asked: Any) -> list[list[dict[str, Any]]]:
    """The events of all pages."""
    pages, cursor = list[list[dict[str, Any]]](), dict[str, str]()
    while True:
        page = await told(client, "/api/event/list", **asked, **cursor)
        pages.append(page["events"])
        if page["next_cursor"] is None:
            return pages
        cursor = {"cursor": page["next_cursor"]}


async def test_events_are_browsed_from_both_ends(client: httpx.AsyncClient, process: Process) -> None:
    ids = await past(process, 7, days=1)

    for order, expected in (("newest", ids[::-1]), ("oldest", ids)):
        pages = await paged(client, order=order, limit=3)
        assert [event["id"] for page in pages for event in page] == expected


async def test_events_are_found_by_tag_type_and_time(client: httpx.AsyncClient, process: Process) -> None:
    ids = await past(process, 3, days=1)
    other = await past(process, 2, days=0.5, tag="apr1")
    await open_tag(client)

    by_tag = await told(client, "/api/event/list", tag="apr1")
    by_type = await told(client, "/api/event/list", types=["tag.created"])
    since = await told(client, "/api/event/list", since=ids[1], order="oldest", types=["gpu.idle"])
    by_time = await told(client, "/api/event/list", since=ids[2].partition("-")[0], types=["gpu.idle"])

    assert [e["id"] for e in by_tag["events"]] == other[::-1]
    assert [e["subject"] for e in by_type["events"]] == ["mar11"]
    assert set(by_type["events"][0]) == {"id", "type", "time", "lab", "tag", "subject", "data", "trace"}
    assert [e["id"] for e in since["events"]] == [ids[2], *other]
    assert [e["id"] for e in by_time["events"]] == other[::-1]


async def test_a_rare_event_is_found_page_by_page_never_in_one_long_read(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("functions.lab.events.MOST_READ", 10)
    await open_tag(client)
    for nth in range(25):
        await open_tag(client, f"t{nth}")

    *empty, last = await paged(client, tag="mar11")

    assert empty == [[], []]
    assert [event["subject"] for event in last] == ["mar11"]


async def test_what_is_no_event_id_is_refused(client: httpx.AsyncClient) -> None:
    wrongs: list[dict[str, Any]] = [
        {"since": "99999999999999999999"},
        {"cursor": "1"},
        {"types": ["no.such"]},
        {"types": []},
    ]
    for wrong in wrongs:
        await refused(client, 422, "/api/event/list", **wrong)
    for name in ("list", "dead"):
        await told(client, f"/api/event/{name}", cursor="9999999999999999999-9999999999999999999")


async def test_dead_letters_are_discarded_together(client: httpx.AsyncClient, process: Process) -> None:
    await past(process, 2, days=0)
    for binding, count in (("a::b", 2), ("c::d", 1)):
        ears = await group(process, binding)
        for event in await ears.read(count, 1.0):
            await ears.bury(event, "it failed", 8)

    tried = await told(client, "/api/event/discard", all=True, dry_run=True)
    some = await told(client, "/api/event/discard", all=True, binding="a::b")

    assert (len(tried["discarded"]), tried["dry_run"]) == (3, True)
    assert len(some["discarded"]) == 2
    assert [e["binding"] for e in (await told(client, "/api/event/dead"))["dead"]] == ["c::d"]


async def test_an_event_is_buried_once_and_redriven_once_whoever_asks_at_once(process: Process) -> None:
    redriven, ears = process.stream.redriven("probe::hear", "one"), await group(process)
    await redriven.serve()
    await past(process, 1, days=0)
    (event,) = await ears.read(1, 1.0)

    await asyncio.gather(*(ears.bury(event, "it failed", 8) for _ in range(5)))
    (letter,) = await process.stream.dead_letters(None, None)
    became = await asyncio.gather(*(process.stream.revive(letter) for _ in range(5)))

    assert sorted(became) == ["gone"] * 4 + ["ok"]
    assert [e.origin for e in await redriven.read(5, 1.0)] == [event.id]
    assert await process.stream.dead_count() == len(await ears.pending()) == 0
