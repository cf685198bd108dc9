"""Output of `nightjar simulate`: progress, then the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.progress import MofNCompleteColumn

from functions.formats.digits import decimals
from functions.swarm.rules.simulating import is_planted
from triggers.cli import output
from triggers.cli.counting import bar
from triggers.simulator.proposer import Fortune
from triggers.simulator.swarm import Found, Swarm
from triggers.simulator.wire import Book

ON_A_TERMINAL_S, IN_A_FILE_S = 0.25, 5.0
"""Seconds between two looks at it."""
TRIAL = (
    *("proposed, truth", "times", "counted in stall cycles"),
    *("on trial", "runs that varied it", "outcome"),
)
FIGURES = 37
"""The column in which figures begin."""
SHOWN = 10
"""Of each kind of discrepancy, those that are listed."""


class Progress:
    """A bar on a terminal, a line every few seconds elsewhere; on standard error."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self.bar = bar(MofNCompleteColumn(), stays=True)
        self._task = self.bar.add_task("joining", total=runs)
        self.every_s = IN_A_FILE_S if self.bar.disable else ON_A_TERMINAL_S

    def show(self, swarm: Swarm) -> None:
        """Show how far this one is."""
        done, answers = len(swarm.book.acknowledged), swarm.wire.meter.answers
        if self.bar.disable:
            output.note(f"{swarm.phase}: {done} of {self._runs} runs, {answers} requests")
        else:
            self.bar.update(self._task, completed=done, description=f"{swarm.phase}, {answers} requests")


def show(swarm: Swarm, found: Found) -> None:
    """Print what came of a simulation, and what does not agree."""
    for what, figure in rows(swarm, found):
        output.show(f"{what:<{FIGURES}}{figure}")
    for fortune in found.fortunes:
        output.show("")
        for what, text in zip(TRIAL, _trial(fortune, swarm.book), strict=True):
            output.show(f"{what:<{FIGURES}}{text}")
    for title, lines in (
        ("lost", found.lost),
        ("counted twice", found.double),
        ("audit", found.violations),
        ("error", swarm.book.faults),
        ("not checked", found.unchecked),
    ):
        for line in lines[:SHOWN]:
            output.show(f"{title}: {line}")
        if len(lines) > SHOWN:
            output.show(f"{title}: and {len(lines) - SHOWN} more")


def rows(swarm: Swarm, found: Found) -> Iterator[tuple[str, str]]:
    """Each figure with what it is."""
    book, meter, stats = swarm.book, swarm.wire.meter, found.stats
    if found.is_interrupted:
        yield "interrupted", f"after {found.seconds:.0f} s; what was done until then:"
    yield "runs", f"{len(book.runs)} handed out, {len(book.acknowledged)} results acknowledged"
    yield "lost results", str(len(found.lost))
    yield "double-counted results", str(len(found.double))
    yield "audit violations", str(len(found.violations))
    yield "errors", str(len(book.faults))
    told = f", kill rate {stats['kill_rate']:g} % on the server" if stats else ""
    yield "kills", f"{book.kills}{told}"
    ran = f", {stats['extended']} used it" if stats else ""
    yield "extensions", f"{book.told_to_extend} offered{ran}"
    yield "best delta", "none" if book.best_delta is None else f"{book.best_delta:+.{decimals(found.sigma)}f}"
    yield "belief calibration", "; ".join(_calibration(found.claims)) or "the server holds no hypotheses"
    yield (
        "simulated faults",
        f"{book.crashes} crashes, {book.late} late results, {book.duplicates} duplicated,"
        f" {book.reordered} reordered and {book.repeats} repeated requests, {meter.thrown_away} answers thrown away",
    )
    yield "workers that died", f"{len(book.rounds_left)}; {_after_deaths(swarm, found)}"
    whole_s = book.trained_s + book.saved_s
    share = book.saved_s / whole_s if whole_s else 0.0
    yield (
        "GPU time saved (simulated)",
        f"{book.saved_s / 3600:.2f} of {whole_s / 3600:.2f} h, {share:.1%};"
        f" extensions took {book.extra_s / 3600:.2f} h",
    )
    yield (
        "throughput",
        f"{meter.answers / found.seconds:.0f} requests/s, {len(book.acknowledged) / found.seconds:.1f} runs/s,"
        f" in {found.seconds:.0f} s",
    )
    for call in ("tick", "next_config", "result", "sync"):
        yield f"latency of {call}", _latency(meter.percentile(call, 50), meter.percentile(call, 99))
    yield "requests repeated without an answer", str(meter.unanswered)
    for name, used in found.used.items():
        yield f"CPU and memory of {name}", f"{used.cpu_s:.1f} s, {used.memory / 2**20:.0f} MiB"


def _trial(fortune: Fortune, book: Book) -> Iterator[str]:
    """What has become of one proposed dimension."""
    shown = fortune.shown
    yield f"{fortune.hidden.name} {fortune.hidden.does}"
    yield str(fortune.proposed)
    cycles = ", ".join(map(str, shown.get("cycles", ())))
    at = ", ".join(map(str, fortune.counted_at))
    wrongly = f", {fortune.wrongly} of them while the search improved" if fortune.wrongly else ""
    yield f"{cycles} (at {at} results{wrongly})" if cycles else "none"
    begun, ended = shown.get("adopted_results"), shown.get("judged_results")
    yield "never" if begun is None else f"from {begun} results to {'now' if ended is None else ended}"
    varied, of = fortune.share(book)
    yield f"{varied} of {of}, {varied / of:.0%}" if of else "none"
    yield f"{shown['state']}: {shown['reason']}" if shown else "the lab does not list it"


def _calibration(claims: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Beliefs about each dimension beside the planted truth."""
    for claim in claims:
        if len(claim["dimensions"]) != 1 or claim["config_constraint"]:
            continue
        truth = "planted" if is_planted(claim["dimensions"][0]) else "not planted"
        believed = claim["settled"] or claim["status"]
        yield (
            f"{claim['statement']} ({truth}): {believed}, P {claim['posterior_mean']:.2f}"
            f" after {claim['n_experiments']}"
        )


def _after_deaths(swarm: Swarm, found: Found) -> str:
    book = swarm.book
    if found.is_interrupted or not swarm.plan.is_private:
        return f"{len(book.abandoned)} runs of theirs go on until the server counts them as lost"
    return f"{len(book.abandoned)} runs of theirs were lost, {book.handed_on} configs handed on so far"


def _latency(p50: float | None, p99: float | None) -> str:
    if p50 is None or p99 is None:
        return "none"
    return f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, from when it was due"
