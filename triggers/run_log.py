"""GET /api/experiment/{experiment_id}/log?follow=true: a run's log and reports as server-sent events, to its end.

Each event is an answer of experiment::log, sent when there are other lines or another report. Its id is the answer's
version: Last-Event-ID, or `after`, leaves out what the client has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.responses import Response

from functions.experiments.waiting import LogLines
from functions.kernel.contract import Call
from functions.kernel.process.running import ended
from state.errors import Invalid
from triggers.http.exchange import Endpoint, Exchange
from triggers.http.identity import identify
from triggers.sse import HEARTBEAT_S, NONE, STILL_HERE, Blocks, EventStream, Subscriber

LOG = "experiment::log"
YES = frozenset({"", "1", "true"})
KNOWN = ("after", "follow", "ticket")

Ask = Callable[[str | None, float], Awaitable[LogLines]]
"""Reads the log after a version; waits at most so many seconds for a change."""


def following(once: Endpoint) -> Endpoint:
    """The endpoint of the log: a stream with `follow` in the query, else one answer."""

    async def answer(exchange: Exchange) -> Response:
        return await (_stream(exchange) if "follow" in exchange.query_params else once(exchange))

    return answer


async def _stream(exchange: Exchange) -> Response:
    visitor = await identify(exchange, ticket=True)
    invoker = exchange.process.invoker
    call = Call(
        caller=visitor.caller,
        proof=visitor.proof,
        invoker=invoker,
        request_id=exchange.request_id,
        traceparent=exchange.traceparent,
    )

    async def ask(after: str | None, timeout_s: float) -> LogLines:
        asked = {**exchange.path_params, "after": after, "timeout": timeout_s}
        answer = await invoker.call(LOG, asked, call)
        assert isinstance(answer, LogLines)
        return answer

    after = _after(exchange)
    found = await ask(after, 0)
    return EventStream(
        exchange.app.state.broadcast,
        NONE,
        visitor.proof,
        lambda subscriber: _blocks(subscriber, ask, found, is_known=found.version == after),
    )


def _after(exchange: Exchange) -> str | None:
    query = exchange.query_params
    if unknown := set(query) - {*KNOWN}:
        raise Invalid(
            f"a log that is followed takes no {sorted(unknown)[:5]}", hint=f"known are {', '.join(KNOWN)}"
        )
    if query["follow"].lower() not in YES:
        raise Invalid(f"follow is {query['follow'][:60]!r}", hint="send follow=true, or leave it out")
    return exchange.header("last-event-id") or query.get("after")


async def _blocks(subscriber: Subscriber, ask: Ask, found: LogLines, *, is_known: bool) -> Blocks:
    """The log so far, then each change, until the run ends or the connection closes."""
    yield STILL_HERE if is_known and not found.finished else _block(found)
    closing = asyncio.create_task(subscriber.waiting.get())
    try:
        while not found.finished:
            asking = asyncio.ensure_future(ask(found.version, HEARTBEAT_S))
            try:
                await asyncio.wait([asking, closing], return_when=asyncio.FIRST_COMPLETED)
                if closing.done():
                    return
                newer = asking.result()
            finally:
                await ended(asking)
            is_news = newer.version != found.version or newer.finished
            yield _block(newer) if is_news else STILL_HERE
            found = newer
    finally:
        await ended(closing)


def _block(lines: LogLines) -> bytes:
    return f"id: {lines.version}\nevent: log\ndata: {lines.model_dump_json()}\n\n".encode()
