"""Follows a stream of the running lab over HTTP, and connects again after each cut."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from functions.kernel.process.supervision import RestartBackoff
from state.client_settings import ClientSettings
from triggers.cli.lab_http import AWAY, LabHttp

TIMEOUT_S = 45.0
"""Seconds of silence after which a connection counts as dead: three heartbeats of the stream."""
BACKOFF = RestartBackoff(first_s=0.2, most_s=5.0)


def follow(
    settings: ClientSettings,
    query: Mapping[str, str],
    say: Callable[[str], None],
    path: str = "/api/events",
    patience_s: float = math.inf,
) -> Iterator[dict[str, Any]]:
    """Yield every event once and in order, even if the connection breaks.

    A gap (events that are no longer kept) is yielded as `{"type": "reset", ...}`.

    Raises:
        NightjarError: the lab does not answer at the start or for `patience_s`, or refuses the request at any time.
    """
    last_id: str | None = None
    failures, told, away_since = 0, False, math.inf
    while True:
        try:
            for event_id, event in _connection(settings, path, query, last_id):
                if told:
                    say("connected again")
                failures, told, last_id, away_since = 0, False, event_id, math.inf
                if event is not None:
                    yield event
        except AWAY as problem:
            away_since = min(away_since, time.monotonic())
            if last_id is None or time.monotonic() - away_since > patience_s:
                raise
            if not told:
                say(f"{problem.detail}; trying again")
                told = True
        failures += 1
        time.sleep(BACKOFF.delay(failures))


def _connection(
    settings: ClientSettings, path: str, query: Mapping[str, str], last_id: str | None
) -> Iterator[tuple[str | None, dict[str, Any] | None]]:
    """Ids and events until the connection ends. The first id is the start position, without an event."""
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    # looks the URL and the token up each time: they may have changed
    with LabHttp(settings, timeout_s=TIMEOUT_S).lines(path, query, headers) as lines:
        yield from read(lines, last_id)


def read(
    lines: Iterable[str], last_id: str | None = None
) -> Iterator[tuple[str | None, dict[str, Any] | None]]:
    """Parse server-sent events into (id, event); an unfinished last block is left out."""
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
