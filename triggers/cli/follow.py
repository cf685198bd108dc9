"""The running lab's events, followed over HTTP however often the connection is cut."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from functions.process.supervision import Backoff
from state.errors import Exhausted, TooManyRequests, Unavailable
from state.settings import Settings
from triggers.cli.lab_http import LabHttp

TIMEOUT_S = 45.0
"""Three heartbeats without a word: the connection is dead, whatever the network says."""
BACKOFF = Backoff(first_s=0.2, most_s=5.0)


def follow(
    settings: Settings, query: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Every event, once and in order; after a cut it goes on where it was, when the lab is back.

    A gap (events that are no longer kept) comes as `{"type": "reset", ...}`.

    Raises:
        NightjarError: the lab cannot be reached at the start, or refuses the request, then or later.
    """
    last_id: str | None = None
    failures, told = 0, False
    while True:
        try:
            for event_id, event in _connection(settings, query, last_id):
                if told:
                    say("connected again")
                failures, told, last_id = 0, False, event_id
                if event is not None:
                    yield event
        except (Exhausted, TooManyRequests, Unavailable) as problem:
            if last_id is None:
                raise
            if not told:
                say(f"{problem.detail}; trying on")
                told = True
        failures += 1
        time.sleep(BACKOFF.delay(failures))


def _connection(
    settings: Settings, query: Mapping[str, str], last_id: str | None
) -> Iterator[tuple[str | None, dict[str, Any] | None]]:
    """Ids with their events until the connection ends; first the id it begins after, without an event."""
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    # The address and the token are looked up each time: a lab may come back elsewhere, and a token be rotated.
    with LabHttp(settings, timeout_s=TIMEOUT_S).lines("/api/events", query, headers) as lines:
        yield from read(lines, last_id)


def read(
    lines: Iterable[str], last_id: str | None = None
) -> Iterator[tuple[str | None, dict[str, Any] | None]]:
    """The blocks of a stream of server-sent events, as (id, event); an unfinished last block is left out."""
    kind, data = "message", list[str]()
    begun = False
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            begun = begun or bool(name)
            match name:
                case "id":
                    last_id = value
                case "event":
                    kind = value
                case "data":
                    data.append(value)
        elif begun:
            yield last_id, {"type": kind, **json.loads("\n".join(data))} if data else None
            kind, data, begun = "message", [], False
