"""The parts that benches share: a private Redis, calls of functions, intervals, and the end of a report."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from rich.console import Console
from rich.table import Table

from bench._load import Wanted
from functions.kernel.process.lifecycle import Process
from state.embedded import EmbeddedRedis
from state.settings import Settings

RESAMPLES = 10_000


class Bench:
    """One run of a bench: where it prints, the bounds that it missed, and its last lines."""

    def __init__(self, width: int | None = 120) -> None:
        self.console = Console(width=width)
        self.missed: list[str] = []
        self._begun, self._load = time.monotonic(), os.getloadavg()[0]

    def row(self, table: Table, what: str, found: str, asked: str = "", *, is_hit: bool = True) -> None:
        """Add a figure with its bound to a table. It is marked and collected if it misses the bound."""
        table.add_row(what, self.marked(found, is_hit, what), asked)

    def marked(self, found: str, is_hit: bool, what: str) -> str:
        """A figure, marked if it misses its bound; then `what` is collected."""
        if is_hit:
            return found
        self.missed.append(what)
        return f"{found} !"

    def verdict(self, is_hit: bool | None, what: str) -> str:
        """hit, or missed, which is collected; empty where there is no bound."""
        if is_hit is False:
            self.missed.append(what)
        return "" if is_hit is None else "hit" if is_hit else "missed !"

    def end(self, what: str = "") -> NoReturn:
        """Print the missed bounds, then `what`, the date and the machine. Exits with 1 if a bound was missed."""
        for each in self.missed:
            self.console.print(f"! missed: {each}")
        self.console.print(
            f"{what}{', ' if what else ''}{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores,"
            f" load {self._load:.1f} before and {os.getloadavg()[0]:.1f} after,"
            f" {time.monotonic() - self._begun:.0f} s in all"
        )
        raise SystemExit(bool(self.missed))


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval."""

    found: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        form = spec or ".3f"
        return f"{self.found:{form}} [{self.low:{form}}, {self.high:{form}}]"


def mean_of(values: Sequence[float]) -> Interval:
    """The mean with its bootstrap interval."""
    known, chance = np.array(values), np.random.default_rng(0)
    means = known[chance.integers(0, len(known), (RESAMPLES, len(known)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(known.mean()), float(low), float(high))


def share(hits: int, tries: int, level: float = 0.95) -> Interval:
    """A share in percent with its exact interval at this level (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    found = binomtest(hits, tries).proportion_ci(level)
    return Interval(100 * hits / tries, 100 * float(found.low), 100 * float(found.high))


@contextmanager
def private_redis() -> Iterator[Settings]:
    """Settings of a lab on a Redis of its own, with an append-only file as `up` starts it."""
    with tempfile.TemporaryDirectory() as folder:
        data = {"data": Path(folder)}
        with EmbeddedRedis.start(Settings.model_validate(data)) as server:
            yield Settings.model_validate({**data, "redis_url": server.url})


def url_of(settings: Settings) -> str:
    assert settings.redis_url is not None
    return settings.redis_url.get_secret_value()


def posted(path: str, /, **body: object) -> Wanted:
    """A POST for `bench._load`."""
    return path, json.dumps(body).encode()


def idea(tag: str, number: int, **more: object) -> dict[str, object]:
    """The body of an experiment with a commit of this number."""
    told = {"hypothesis": "a wider MLP learns faster", "category": "architecture"}
    return {"tag": tag, **told, "commit_sha": f"{number:07x}", "diff_summary": "MLP ratio 4 -> 5", **more}


async def call(process: Process, name: str, /, **body: Any) -> dict[str, Any]:
    """Call a function in the process of a lab."""
    return (await process.invoker.call(name, body, process.invoker.system("bench"))).model_dump()
