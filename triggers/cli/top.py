"""`nightjar top` shows a lab at work: the best of each active tag, runs, GPUs and the last events, live."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live

from state.client_settings import ClientSettings
from state.errors import Forbidden, NightjarError, NotFound
from state.ids import named_by
from triggers.cli.follow import follow
from triggers.cli.lab_http import AWAY, LabHttp
from triggers.cli.options import tag_argument, with_settings
from triggers.cli.output import OK
from triggers.cli.runs import the_tag
from triggers.cli.tables import PIPE_WIDTH
from triggers.cli.top_view import LabNow, picture

EVENTS, ONCE_EVENTS = 50, 10
"""The newest events that are kept, and those of a single picture."""
ONCE_ROWS = 100
"""Rows of a single picture, which no screen bounds."""
TAGS, QUIET_TAGS = 12, 3
"""Most tags at once, and the newest ones where none is active."""
RUNS = 50
"""Most runs of a tag at once."""
FIELDS = (
    *("experiment_id", "status", "started_at", "budget_s", "last_progress", "last_metric"),
    *("gpu_id", "agent", "worker_id", "description"),
)
TRAINING = ("running", "registered")
"""Statuses of runs that train: on a worker, or by their agents."""
ENDINGS = (
    *("finished", "lost", "confirmed", "unconfirmed", "demoted", "retracted", "promoted", "refuted"),
    *("revalued", "retested"),
)
CHANGES_RESULTS = frozenset(f"experiment.{ending}" for ending in ENDINGS)
"""Types of events after which a tag's results are read again."""
BUSY_S, IDLE_S = 1.0, 5.0
"""Seconds between two looks without an event, while something trains and while nothing does."""
LEAST_S = 0.5
"""Seconds between two looks at least, however many events come."""
SHARE = 0.1
"""Most of the time that looks take: where a look is slow, they are rarer."""
TIMEOUT_S = 10.0
"""Seconds for each part of an answer."""
Training = tuple[list[dict[str, Any]], int]
"""Runs, and how many more there are."""


@click.command()
@with_settings
@tag_argument
@click.option("--once", is_flag=True, help="print one picture and end, as in a pipe")
def command(settings: ClientSettings, tag: str | None, once: bool) -> int:
    """Watch the lab, or TAG alone, until q or Ctrl-C: bests, runs, GPUs and the last events.

    A gain is over the baseline, on the same seeds; above zero is better. It goes on over restarts of the lab.
    """
    if tag is not None:
        the_tag(LabHttp(settings), tag)
    watched = Watched(settings, tag)
    console = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    if once or not sys.stdout.isatty() or console.is_dumb_terminal:
        listed = LabHttp(settings).ask("POST", "/api/event/list", {"limit": ONCE_EVENTS, "tag": tag})
        for event in reversed(listed["events"]):
            watched.heard(event)
        for line in picture(watched.look(), console.width, ONCE_ROWS):
            console.print(line, no_wrap=True, crop=False, overflow="ignore")
        return OK
    now = watched.look()
    with contextlib.suppress(KeyboardInterrupt):
        _live(console, watched, now)
    return OK


def _live(console: Console, watched: Watched, now: LabNow) -> None:
    """Redraw after each event, each resize and each pause, until q or Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # gives the terminal back
    woken = queue.SimpleQueue[str]()
    signal.signal(signal.SIGWINCH, lambda *_: woken.put("resized"))
    threading.Thread(target=watched.listen, args=(woken,), daemon=True).start()
    looked_at, rest_s = time.monotonic(), 0.0
    with _keys(woken), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            columns, rows = shutil.get_terminal_size()
            live.update(Group(*picture(now, columns, rows)), refresh=True)
            next_look = looked_at + max(rest_s, BUSY_S if now.runs or now.trouble else IDLE_S)
            while (wait_s := next_look - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    match woken.get(timeout=wait_s):
                        case "q":
                            return
                        case "resized":
                            break
                        case "event":
                            next_look = min(next_look, looked_at + max(rest_s, LEAST_S))
            else:
                began = time.monotonic()
                now, looked_at = watched.look(before=now), time.monotonic()
                rest_s = min(IDLE_S, (looked_at - began) / SHARE)


@contextlib.contextmanager
def _keys(pressed: queue.SimpleQueue[str]) -> Iterator[None]:
    """Hand over each key that is pressed. The terminal does not show it."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    quiet = [*before]
    quiet[3] &= ~(termios.ICANON | termios.ECHO)

    def read() -> None:
        while key := os.read(sys.stdin.fileno(), 1):
            pressed.put(key.decode(errors="replace"))

    termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
    threading.Thread(target=read, daemon=True).start()
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


class Watched:
    """Reads a lab over HTTP, and its event stream in a thread. Results of a tag are read after its events only."""

    def __init__(self, settings: ClientSettings, tag: str | None) -> None:
        self._settings, self._tag = settings, tag
        self._events = deque[dict[str, Any]](maxlen=EVENTS)
        self._results: dict[str, dict[str, Any]] = {}
        self._runs: dict[str, Training] = {}
        self._changed, self._moved = set[str](), set[str]()
        """Tags whose results, and those whose runs, are to be read again."""
        self._refusal: NightjarError | None = None

    def listen(self, woken: queue.SimpleQueue[str]) -> None:
        """Take in events, also over restarts of the lab."""
        query = {"last": str(EVENTS), "min_interval": str(LEAST_S)} | (
            {"tag": self._tag} if self._tag else {}
        )
        try:
            for event in follow(self._settings, query, lambda _: None):  # a look meets the same trouble
                self.heard(event)
                woken.put("event")
        except NightjarError as problem:
            self._refusal = problem
            woken.put("event")

    def heard(self, event: dict[str, Any]) -> None:
        """Take in one event."""
        self._events.append(event)
        if event["type"] == "reset":  # events are missing
            self._changed.update(self._results)
            self._moved.update(self._runs)
        elif event["tag"] is not None:
            self._moved.add(event["tag"])
            if event["type"] in CHANGES_RESULTS:
                self._changed.add(event["tag"])

    def look(self, before: LabNow | None = None) -> LabNow:
        """The lab now; without an answer it is `before`. Raises NightjarError: a refusal, or no `before`."""
        if self._refusal is not None:
            raise self._refusal
        try:
            return self._look()
        except AWAY as problem:
            if before is None:
                raise
            return replace(before, trouble=f"{problem.detail}; trying again")

    def _look(self) -> LabNow:
        http = LabHttp(self._settings, timeout_s=TIMEOUT_S)  # anew: after a restart it may have another port
        status = http.ask("GET", "/api/lab/status")
        pool = http.ask("GET", "/api/pool/list")["workers"]
        events = [*self._events]
        tags = [self._tag] if self._tag else self._active(http, pool, events)
        for tag in [*tags]:
            try:
                self._read(http, tag)
            except (Forbidden, NotFound):  # a tag of others, or one that is gone
                if self._tag:
                    raise
                tags.remove(tag)
        runs = [run for tag in tags for run in self._runs[tag][0]]
        more = sum(self._runs[tag][1] for tag in tags)
        results = [self._results[tag] for tag in tags]
        return LabNow(http.url, status, pool, results, runs, more, events, "", time.time())

    def _read(self, http: LabHttp, tag: str) -> None:
        """Read a tag's results and runs, if they may have changed."""
        # marks are dropped first: what changes meanwhile is read the next time
        if tag not in self._results or tag in self._changed:
            self._changed.discard(tag)
            self._results[tag] = http.ask("POST", "/api/report/night", {"tag": tag, "changes": False})
        if tag in self._moved or tag not in self._runs or self._runs[tag][0]:
            self._moved.discard(tag)
            self._runs[tag] = _training(http, tag)

    def _active(self, http: LabHttp, pool: list[dict[str, Any]], events: list[dict[str, Any]]) -> list[str]:
        """Tags with a run on a GPU or an event of late, else the newest ones."""
        on_gpus = [named_by(gpu["experiment_id"])[1] for gpu in pool if gpu["experiment_id"]]
        of_late = [event["tag"] for event in reversed(events) if event.get("tag")]
        active = [*dict.fromkeys([*on_gpus, *of_late])]
        if not active:
            newest = http.ask("GET", f"/api/report/tags?limit={QUIET_TAGS}")["tags"]
            active = [tag["name"] for tag in newest]
        return sorted(active[:TAGS])


def _training(http: LabHttp, tag: str) -> Training:
    """The tag's runs that train."""
    pages = [
        http.ask(
            "POST", "/api/experiment/history", {"tag": tag, "status": status, "limit": RUNS, "fields": FIELDS}
        )
        for status in TRAINING
    ]
    runs = [run for page in pages for run in page["experiments"]]
    return runs, sum(page["total"] for page in pages) - len(runs)
