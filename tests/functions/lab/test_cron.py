"""cron::list, run, pause and resume: what an operator sees of the clock, and does to it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from functions.kernel.process.lifecycle import Process
from tests.labs import asked, claimed, events_of, refused, told


async def row(client: httpx.AsyncClient, function: str = "pool::sweep") -> dict[str, Any]:
    """What cron::list says of one function."""
    listed = await asked(client, "/api/cron/list")
    (found,) = [row for row in listed["functions"] if row["function"] == function]
    return dict(found)


async def handle(process: Process, function: str = "pool::sweep") -> list[dict[str, Any]]:
    """As if the events process had handled every firing there is; answers what they said."""
    reader = process.schedules.subscription(function, "test")
    await reader.serve()
    events = await reader.read(100, 0.01)
    await reader.done([e.id for e in events])
    return [dict(e.data) for e in events]


async def test_the_list_shows_how_the_clock_fires_each(client: httpx.AsyncClient, process: Process) -> None:
    listed = await told(client, "/api/cron/list")

    found = {row["function"]: row for row in listed["functions"]}
    assert set(found) >= {"pool::sweep", "pool::dispatch", "gpu::health"}
    sweep = found["pool::sweep"]
    assert sweep["interval_s"] == process.settings.sweep_s
    assert (sweep["missed_policy"], sweep["overlap_policy"]) == ("latest", "skip")
    assert sweep["next_fire"] == sweep["next_scheduled"] > listed["now"]
    assert sweep["last_fired"] is sweep["last_scheduled"] is sweep["paused_since"] is None


async def test_the_list_shows_what_became_of_the_firings(client: httpx.AsyncClient, process: Process) -> None:
    now = await process.lab.now()
    await claimed(process, "pool::sweep", now - 3, fire=now - 3, missed=4)
    await claimed(process, "pool::sweep", now - 2, before=now - 3, fire=now - 2)

    unread = await row(client)
    reader = process.schedules.subscription("pool::sweep", "test")
    await reader.serve()
    (event,) = await reader.read(100, 0.01)
    read = await row(client)
    await reader.done([event.id])
    done = await row(client)

    assert (unread["fired"], unread["missed"], unread["skipped"]) == (1, 4, 1)
    assert unread["last_scheduled"] < unread["last_fired"]
    assert [(r["waiting"], r["running"]) for r in (unread, read, done)] == [(1, 0), (0, 1), (0, 0)]


async def test_a_run_by_hand_comes_once_per_request(client: httpx.AsyncClient, process: Process) -> None:
    first = await told(client, "/api/cron/run", function="pool::sweep", request_id="r1")
    await handle(process)

    again = await told(client, "/api/cron/run", function="pool::sweep", request_id="r1")
    keys = [name async for name in process.lab.scan("answers:*")]
    await process.lab.command("DEL", *keys)  # as if the web process had died before it kept the answer
    third = await told(client, "/api/cron/run", function="pool::sweep", request_id="r1")
    other = await told(client, "/api/cron/run", function="pool::sweep", request_id="r2")
    firings = await handle(process)

    assert first == again == third
    assert other["became"] == "fired"
    assert [firing["by_hand"] for firing in firings] == [True]
    found = await row(client)
    assert (found["by_hand"], found["fired"]) == (2, 0)


async def test_a_run_by_hand_keeps_to_the_overlap_policy(client: httpx.AsyncClient, process: Process) -> None:
    await told(client, "/api/cron/run", function="pool::sweep")
    await told(client, "/api/cron/run", function="pool::dispatch")

    problem = await refused(client, 409, "/api/cron/run", function="pool::sweep")
    waits = await told(client, "/api/cron/run", function="pool::dispatch")
    await refused(client, 409, "/api/cron/run", function="pool::dispatch")

    assert "unhandled" in problem["detail"]
    assert waits["became"] == "waits"
    assert len(await handle(process, "pool::dispatch")) == 1
    assert [firing["by_hand"] for firing in await handle(process, "pool::dispatch")] == [True]


async def test_pausing_and_resuming_emit_one_event(client: httpx.AsyncClient, process: Process) -> None:
    pausing = [told(client, "/api/cron/pause", function="pool::sweep", reason="disk swap") for _ in range(2)]
    paused = await asyncio.gather(*pausing)
    shown, status = await row(client), await asked(client, "/api/lab/status")
    by_hand = await told(client, "/api/cron/run", function="pool::sweep")
    resumed = await asyncio.gather(
        *(told(client, "/api/cron/resume", function="pool::sweep") for _ in range(2))
    )

    assert paused[0] == paused[1]
    assert (shown["paused_since"], shown["paused_reason"]) == (paused[0]["paused_since"], "disk swap")
    assert shown["next_fire"] is None
    assert [hint for hint in status["hints"] if "pool::sweep" in hint and "cron::resume" in hint]
    assert by_hand["became"] == "fired"
    assert {answer["paused_since"] for answer in resumed} == {paused[0]["paused_since"], None}
    assert [e["reason"] for e in await events_of(process, "cron.paused")] == ["disk swap"]
    (event,) = await events_of(process, "cron.resumed")
    assert (event["function"], event["paused_s"] >= 0) == ("pool::sweep", True)
    assert not [h for h in (await asked(client, "/api/lab/status"))["hints"] if "cron::resume" in h]
