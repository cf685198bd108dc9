"""The picture of `nightjar top`: lines of a width and, on a screen, of a height."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.text import Text

from functions.formats.digits import decimals
from triggers.cli.events import line as event_line
from triggers.cli.output import as_commands, counted, printable
from triggers.cli.runs import signed
from triggers.cli.tables import Column, cut, table_lines

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
