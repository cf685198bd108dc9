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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from functions.formats.digits import decimals
from state.client_settings import ClientSettings
from state.errors import Forbidden, NightjarError, NotFound
from state.ids import named_by
from triggers.cli.events import follow
from triggers.cli.events import line as event_line
from triggers.cli.lab_http import AWAY, LabHttp
from triggers.cli.options import tag_argument, with_settings
from triggers.cli.output import OK, as_commands, counted, printable
from triggers.cli.runs import TELLS_RESULT, signed, the_tag
from triggers.cli.tables import PIPE_WIDTH, Column, cut, table_lines

HINTS = 2
"""Most hints."""
BAR = 10
"""Columns of a progress bar."""
GIB = 1024.0
TAGS = (
    *(Column("tag", text=8), Column("best", right=True), Column("gain", right=True)),
    *(Column("noise", right=True, spare=5), Column("experiment", spare=4)),
    *(Column("ideas", right=True, spare=2), Column("kept", right=True)),
    *(Column("an hour", right=True, spare=3), Column("last keep", right=True, spare=6)),
    Column("state", spare=1),
)
RUNS = (
    *(Column("run"), Column("progress"), Column("value", right=True, spare=1)),
    *(Column("time", right=True), Column("budget", right=True, spare=4), Column("on", text=8, spare=3)),
    *(Column("by", text=6, spare=2), Column("what", text=16)),
)
GPUS = (
    *(Column("GPU", text=12), Column("name", text=8, spare=2), Column("status")),
    *(Column("use", right=True), Column("memory", right=True)),
    *(Column("temp", right=True, spare=3), Column("run"), Column("lease", right=True, spare=1)),
)
STYLES = {"unhealthy": "red", "offline": "dim", "draining": "yellow"}
Row = tuple[Sequence[str], str]
"""Cells and a style."""


@dataclass(frozen=True)
class LabNow:
    """Answers of a lab's functions at one moment."""

    url: str
    status: Mapping[str, Any]
    gpus: Sequence[Mapping[str, Any]]
    results: Sequence[Mapping[str, Any]]
    """`report::night` of each shown tag."""
    runs: Sequence[Mapping[str, Any]]
    more_runs: int
    """Runs of these tags that train and are not among `runs`."""
    events: Sequence[dict[str, Any]]
    trouble: str
    """Why the picture may be old; empty: it is not."""
    at: float
    """Seconds since 1970."""


def picture(now: LabNow, width: int, height: int) -> list[Text]:
    """Tags, runs, GPUs and events, each with rows as there is room."""
    lines = [Text(cut(_headline(now), width), "bold")]
    if now.trouble:
        lines.append(Text(cut(printable(now.trouble), width), "bold red"))
    hints = [printable(f"-> {as_commands(hint)}") for hint in now.status["hints"][:HINTS]]
    lines += [Text(cut(hint, width), "yellow") for hint in hints]
    digits = {night["tag"]: decimals(night["sigma"]) for night in now.results}
    sections: list[tuple[Sequence[Column], list[Row], int]] = [
        (TAGS, [_tag(night, now) for night in now.results], 0),
        (RUNS, [_run(run, now.at, digits) for run in _oldest_first(now.runs)], now.more_runs),
        (GPUS, [_gpu(gpu, now.at) for gpu in now.gpus], 0),
    ]
    sections = [section for section in sections if section[1]]
    room = height - len(lines) - 2 * len(sections) - 1  # a head and an empty line for each
    *shares, of_events = shared(
        [*(len(rows) + (more > 0) for _, rows, more in sections), len(now.events)], room
    )
    for (columns, rows, more), share in zip(sections, shares, strict=True):
        lines += [Text(), *_table(columns, rows, more, share, width)]
    lines.append(Text())
    for event in now.events[len(now.events) - of_events :]:
        told = event_line(event)
        told.truncate(width, overflow="ellipsis")
        lines.append(told)
    return lines[:height]


def shared(wanted: Sequence[int], room: int) -> list[int]:
    """Rows for each section: none gets more than it wants, and what one leaves goes to the others."""
    given = [0] * len(wanted)
    while room > 0 and given != [*wanted]:
        for nth, most in enumerate(wanted):
            if given[nth] < most and room > 0:
                given[nth] += 1
                room -= 1
    return given


def _table(columns: Sequence[Column], rows: Sequence[Row], more: int, share: int, width: int) -> list[Text]:
    """A head and at most `share` rows, the last of which counts those that are left out."""
    shown = rows if len(rows) + (more > 0) <= share else rows[: max(0, share - 1)]
    more += len(rows) - len(shown)
    head, *texts = table_lines(columns, [cells for cells, _ in shown], width)[0]
    lines = [Text(cut(head, width), "dim")]
    lines += [Text(cut(text, width), style) for text, (_, style) in zip(texts, shown, strict=True)]
    return [*lines, Text(f"and {more} more", "dim")] if more else lines


def _headline(now: LabNow) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in now.status["counts"].items())
    training = len(now.runs) + now.more_runs
    moment = time.strftime("%H:%M:%S", time.localtime(now.at))
    return printable(
        f"{moment}  {now.status['lab']} at {now.url}  {counted(training, 'run')}, {now.status['queue']} waiting"
        f"  {kinds}"
    )


def _tag(night: Mapping[str, Any], now: LabNow) -> Row:
    digits, gain, chain = decimals(night["sigma"]), night["gain"], night["chain"]
    if chain and chain[-1]["above"] is None and not night["by_delta"]:
        gain = None  # the best is the first: it beat nothing
    best = night["best"]
    sign = "+" if night["by_delta"] else ""
    cells = (
        night["tag"],
        "" if best is None else f"{best:{sign}.{digits}f}",
        signed(gain, digits),
        "" if night["sigma"] is None else f"{night['sigma']:.{digits}f}",
        night["best_experiment_id"] or "",
        *(str(night["ideas"]), str(night["kept"])),
        "" if night["runs_an_hour"] is None else f"{night['runs_an_hour']:.3g}",
        _ago(night["last_keep_at"], now.at),
        "paused" if night["tag"] in now.status["paused_tags"] else "",
    )
    return cells, "green" if gain and gain > 0 else ""


def _oldest_first(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(runs, key=lambda run: (run["started_at"] or "", run["experiment_id"]))


def _run(run: Mapping[str, Any], at: float, digits: Mapping[str, int]) -> Row:
    done, value = run["last_progress"], run["last_metric"]
    tag = run["experiment_id"].rpartition("-")[0]
    cells = (
        run["experiment_id"],
        "" if done is None else _bar(done),
        "" if value is None else f"{value:.{digits[tag]}f}",
        _ago(run["started_at"], at),
        "" if run["budget_s"] is None else _long(run["budget_s"]),
        run["gpu_id"] or "",
        run["worker_id"] or run["agent"] or "",
        run["description"],
    )
    return cells, ""


def _bar(done: float) -> str:
    full = round(BAR * min(1.0, max(0.0, done)))
    return f"{'█' * full}{'░' * (BAR - full)} {done:>4.0%}"


def _gpu(gpu: Mapping[str, Any], at: float) -> Row:
    health = gpu["health"] or {}
    used, whole = health.get("memory_used_mb"), health.get("memory_total_mb")
    cells = (
        *(gpu["gpu_id"], gpu["gpu_name"], gpu["status"]),
        _with(health.get("utilization_percent"), lambda use: f"{use:.0f}%"),
        _with(used, lambda mb: f"{mb / GIB:.1f}" + (f" of {whole / GIB:.0f} GiB" if whole else " GiB")),
        _with(health.get("temperature_c"), lambda degrees: f"{degrees:.0f} °C"),
        gpu["experiment_id"] or "",
        _ago(gpu["leased_at"], at),
    )
    return cells, STYLES.get(gpu["status"], "")


def _with(number: Any, told: Callable[[float], str]) -> str:
    return told(number) if isinstance(number, int | float) else ""


def _ago(stamp: str | None, at: float) -> str:
    """Time since a stamp, in one unit or two."""
    return "" if stamp is None else _long(max(0.0, at - datetime.fromisoformat(stamp).timestamp()))


def _long(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


EVENTS, ONCE_EVENTS = 50, 10
"""The newest events that are kept, and those of a single picture."""
ONCE_ROWS = 100
"""Rows of a single picture, which no screen bounds."""
MOST_TAGS, QUIET_TAGS = 12, 3
"""Most tags at once, and the newest ones where none is active."""
MOST_RUNS = 50
"""Most runs of a tag at once."""
FIELDS = (
    *("experiment_id", "status", "started_at", "budget_s", "last_progress", "last_metric"),
    *("gpu_id", "agent", "worker_id", "description"),
)
TRAINING = ("running", "registered")
"""Statuses of runs that train: on a worker, or by their agents."""
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
        self._events.append(event)
        if event["type"] == "reset":  # events are missing
            self._changed.update(self._results)
            self._moved.update(self._runs)
        elif event["tag"] is not None:
            self._moved.add(event["tag"])
            if event["type"] in TELLS_RESULT:
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
        return sorted(active[:MOST_TAGS])


def _training(http: LabHttp, tag: str) -> Training:
    pages = [
        http.ask(
            "POST",
            "/api/experiment/history",
            {"tag": tag, "status": status, "limit": MOST_RUNS, "fields": FIELDS},
        )
        for status in TRAINING
    ]
    runs = [run for page in pages for run in page["experiments"]]
    return runs, sum(page["total"] for page in pages) - len(runs)
