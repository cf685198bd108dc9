"""`nightjar simulate` tries a swarm's server with many simulated workers, which need no GPU."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import click
from rich.progress import MofNCompleteColumn

from functions.formats.digits import decimals
from functions.kernel.process.logs import start_logging
from functions.kernel.process.running import stop_signals
from functions.swarm.rules.simulating import DOES_NOTHING, HELPS, Faults, is_planted
from state.errors import Conflict
from state.private import read_key
from state.settings import Settings
from triggers.cli import output
from triggers.cli.lab_http import bearer_of
from triggers.cli.options import FiniteNumber, all_settings_from
from triggers.cli.output import ERROR, OK, note
from triggers.cli.tables import bar
from triggers.cli.worker import checked_url
from triggers.lab import LabParts, LocalLab
from triggers.ports import free_port
from triggers.simulated_swarm import Found, Plan, Swarm, watched
from triggers.simulated_wire import Book, Refused, Wire
from triggers.simulated_worker import Fortune

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


REQUESTS_PER_S = 100.0
"""The load that is aimed at where no speed is given."""
REQUESTS_OF_A_RUN = 8
MOST_SPEED = 60.0
RUN_S = 300.0
INTERRUPTED = 130
LOOK_S = 0.1
PRIVATE_TAG = "swarm"
SHARE = FiniteNumber(0, 0.5)


@click.command()
@click.option("--workers", type=click.IntRange(1, 10_000), default=50, show_default=True, help="how many")
@click.option("--rounds", type=click.IntRange(1, 10_000), default=3, show_default=True, help="runs of each")
@click.option(
    "--against-server", is_flag=True, help="simulate against the server at --meta-url, not a private one"
)
@click.option("--meta-url", help="the swarm's URL [NIGHTJAR_URL]; implies --against-server")
@click.option("--enroll-token", help="what lets workers in [NIGHTJAR_ENROLL_TOKEN]")
@click.option(
    "--loss-rate",
    type=SHARE,
    default=0.0,
    show_default=True,
    help="share of the answers that are thrown away, so that the request is repeated",
)
@click.option(
    "--max-concurrency",
    type=click.IntRange(1, 4096),
    default=64,
    show_default=True,
    help="most requests at once",
)
@click.option(
    "--trace-file",
    type=click.File("w", encoding="utf-8", lazy=False),
    help="write each request to it, one JSON object a line",
)
@click.option(
    "--speed",
    type=FiniteNumber(0.1, 100_000),
    help="simulated seconds in a second; default: so that about 100 requests are due in a second, at most 60",
)
@click.option(
    "--propose",
    is_flag=True,
    help="let a scripted author propose two dimensions, and end once both were tried",
)
@click.option("--seed", help="decides curves and faults; default: random")
def command(
    workers: int,
    rounds: int,
    against_server: bool,
    meta_url: str | None,
    enroll_token: str | None,
    loss_rate: float,
    max_concurrency: int,
    trace_file: TextIO | None,
    speed: float | None,
    propose: bool,
    seed: str | None,
) -> int:
    """Simulate a swarm of workers with planted learning curves, over the same HTTP doors as real workers.

    Without a URL a private lab is started for it, and removed at the end. 3 % of the runs crash and 5 % send their
    result late; 10 % of the workers die in the middle of a run, 5 % of the requests are duplicated, reordered or
    repeated. With --propose, a scripted author proposes two dimensions that the swarm lacks whenever the lab asks for
    some: one helps, one does nothing. Exits with 1 where a result was lost or counted twice, or a request failed.
    """
    settings = all_settings_from()
    url = meta_url or (settings.url if against_server else None)
    if url is None and against_server:
        raise click.UsageError("--against-server: name the server with --meta-url URL, or set NIGHTJAR_URL")
    token = settings.enroll_token.get_secret_value() if settings.enroll_token is not None else None
    bearer = None if url is None else bearer_of(all_settings_from(url=checked_url(url)))
    plan = Plan(
        workers=workers,
        rounds=rounds,
        speed=speed or min(MOST_SPEED, REQUESTS_PER_S * RUN_S / (REQUESTS_OF_A_RUN * workers)),
        faults=Faults(losses=loss_rate),
        name=f"sim-{secrets.token_hex(3)}",
        seed=seed if seed is not None else secrets.token_hex(4),
        is_private=url is None,
        enroll_token=enroll_token or token if url is not None else None,
        operator=None if bearer is None else bearer.text,
        tag=settings.swarm_tag if url is not None else PRIVATE_TAG,
        hidden=(HELPS, DOES_NOTHING) if propose else (),
    )
    if url is not None:
        return asyncio.run(_foreign(checked_url(url), plan, max_concurrency, trace_file))
    return asyncio.run(_private(plan, max_concurrency, trace_file))


async def _private(plan: Plan, most_at_once: int, trace: TextIO | None) -> int:
    """Simulate against a lab of our own, until the end or Ctrl-C; a second one ends it without figures."""
    note("starting a private lab: Redis, web, events and clock ...")
    async with private_lab(announce=note) as lab:
        plan = replace(plan, operator=read_key(lab.own_settings))
        work = _against(lab.url, plan, most_at_once, trace, lab.stop, lambda: lab.pids)
        simulating = asyncio.create_task(work, name="simulate")
        running = asyncio.create_task(lab.run(), name="lab")
        try:
            await asyncio.wait([simulating, running], return_when=asyncio.FIRST_COMPLETED)
            if running.done() and not lab.stop.is_set():
                running.result()
            while lab.stop.is_set() and "web" in lab.pids and not simulating.done():
                await asyncio.wait([simulating], timeout=LOOK_S)
        finally:
            for task in (simulating, running):
                task.cancel()
            await asyncio.wait([simulating, running])
    code = INTERRUPTED if simulating.cancelled() else simulating.result()
    if code == INTERRUPTED:
        note("interrupted; nothing is left running")
    return code


async def _foreign(url: str, plan: Plan, most_at_once: int, trace: TextIO | None) -> int:
    return await _against(url, plan, most_at_once, trace, stop_signals(), dict)


async def _against(
    url: str,
    plan: Plan,
    most_at_once: int,
    trace: TextIO | None,
    stop: asyncio.Event,
    pids: Callable[[], Mapping[str, int]],
) -> int:
    """Simulate against the server at this URL until the end or `stop`; answers the exit code."""
    note(
        f"{plan.workers} workers, {plan.rounds} runs each, at {plan.speed:g} times real speed; seed {plan.seed}"
    )
    losses = plan.faults.losses
    async with Wire(url, plan.seed, losses=losses, most_at_once=most_at_once, trace=trace) as wire:
        swarm = Swarm(plan, wire, stop, pids)
        progress = Progress(plan.workers * plan.rounds)
        with progress.bar:
            try:
                found = await watched(swarm, progress.every_s, progress.show)
            except Refused as problem:
                hint = "give the team's secret, or an enroll token for workers: --enroll-token"
                raise Conflict(f"{url} refused: {problem}", hint=hint) from problem
    show(swarm, found)
    if found.is_interrupted:
        return INTERRUPTED
    return OK if found.is_clean and not swarm.book.faults else ERROR


@asynccontextmanager
async def private_lab(announce: Callable[[str], None]) -> AsyncIterator[LocalLab]:
    """Start it; at the end it is drained, and its folder removed. Raises Unavailable: it does not start."""
    forget_settings()
    with tempfile.TemporaryDirectory(prefix="nightjar-simulate-", ignore_cleanup_errors=True) as folder:
        settings = Settings(data=Path(folder), lab="simulated", port=free_port(0))
        start_logging(settings, "up")
        async with LocalLab.started(LabParts(settings, repo=None), announce) as lab:
            yield lab


def forget_settings() -> None:
    """Take other labs' settings, Redis and tokens above all, out of our environment, which its processes inherit."""
    for name in [name for name in os.environ if name.upper().startswith("NIGHTJAR_")]:
        del os.environ[name]
    os.environ["NIGHTJAR_STALE_S"] = "6"
