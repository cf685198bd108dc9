"""Measures how long a lab takes to recover when one of its processes is killed or stopped during a run.

    .venv/bin/python -P -m bench.recovery

Each row has its own lab, started by `./nightjar up` with the default settings: a heartbeat every 10 s, a worker stale
after 60 s, a process silent after 15 s. One CPU slot trains, and a second experiment waits. Seconds count from the
signal until the lab works again for a user, which is checked ten times per second.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import psutil
from rich.table import Table

from bench._report import Bench
from tests.journeys.running import BY_DEFAULT, RunningLab, lives, running_lab
from tests.journeys.victims import VICTIMS

TAG = "recovery"
RUN_S = 300.0
"""Longer than any row: no run ends by itself."""
FINISHED = ("keep", "discard", "crash", "timeout")
PROCESS_S = 5.0
"""Bound for web, events, clock and Redis after SIGKILL."""
RUN_DEATH_S = 20.0
"""Bound for the script, the horse and the RQ worker: a keeper checks them, so two heartbeats."""
KEEPER_S = 70.0
"""Bound for a silent worker: stale after 60 s, then found by a sweep within 10 s."""
SILENT_S = 15.0
"""Added to the bound for SIGSTOP: a process counts as dead after this silence."""
STRIKES = 200
"""Times that a victim is suspended in search of the worst moment."""
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)


@dataclass
class RecoveryCase:
    """One lab in the middle of a run, just before the signal."""

    lab: RunningLab
    victim: psutil.Process
    script: psutil.Process
    keeper: int
    running: str
    waiting: str
    number: signal.Signals
    since: str = ""
    """The signal's time, by Redis' clock."""

    def clock(self) -> dict[str, Any]:
        """The clock's schedules by function, and Redis' time as `now`."""
        found: dict[str, Any] = self.lab.get("cron/list")
        return {row["function"]: row for row in found["functions"]} | {"now": found["now"]}

    def experiment(self, experiment_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.lab.get(f"experiment/{experiment_id}")["experiment"]
        return found

    def strike(self) -> float:
        """Send the signal; returns the time by this host's monotonic clock."""
        begun = time.monotonic()
        self.victim.send_signal(self.number)
        return begun


# -- the worst moment for the signal


def strike(case: RecoveryCase) -> float:
    """Strike at any moment of a run."""
    return case.strike()


def strike_holding_an_event(case: RecoveryCase) -> float:
    """Strike when the victim has taken an event and not handled it: it is suspended until a look finds that."""
    for nth in range(STRIKES):
        case.lab.submit(TAG)
        time.sleep(nth % 10 * 0.001)
        begun = time.monotonic()
        case.victim.suspend()
        bindings = case.lab.get("lab/status")["events"]["bindings"]
        if any(b["unacknowledged"] for b in bindings.values()):
            return begun if case.number == signal.SIGSTOP else case.strike()
        case.victim.resume()
    raise AssertionError("the victim was never suspended with an event")


def strike_before_a_firing(case: RecoveryCase) -> float:
    """Strike shortly before a firing, so that it is due while no clock is alive."""

    def is_near() -> bool:
        clock = case.clock()
        due, now = (datetime.fromisoformat(t) for t in (clock["pool::dispatch"]["next_fire"], clock["now"]))
        return bool(0.0 < (due - now).total_seconds() < 0.5)

    case.lab.until(is_near, "a firing is near", every_s=0.1)
    return case.strike()


# -- what a user sees when it works again


def answers(case: RecoveryCase) -> bool:
    """A request that needs the whole web process."""
    return bool(case.lab.get("lab/status"))


def writes(case: RecoveryCase) -> bool:
    """A new experiment can be registered."""
    case.lab.post(
        "experiment/register",
        tag=TAG,
        hypothesis="h",
        category="other",
        diff_summary="d",
        commit_sha=case.lab.base,
    )
    return True


def delivers(case: RecoveryCase) -> bool:
    """Every event and firing has been handled, also those that the victim had read."""
    bindings = case.lab.get("lab/status")["events"]["bindings"]
    clock = case.clock()
    clock.pop("now")
    unhandled = [b["undelivered"] != 0 or b["unacknowledged"] != 0 for b in bindings.values()]
    return not any(unhandled) and not any(row["running"] or row["waiting"] for row in clock.values())


def firings(case: RecoveryCase) -> bool:
    """A firing that was due after the signal was made."""
    clock = case.clock()
    clock.pop("now")
    return any((row["last_scheduled"] or "") > case.since for row in clock.values())


def trains_again(case: RecoveryCase) -> bool:
    """The slot trains again: the second attempt, or the experiment that waited."""
    first = case.experiment(case.running)
    again = first["status"] == "running" and first["attempt"] > 1
    return bool(again or case.experiment(case.waiting)["status"] == "running")


def is_kept_again(case: RecoveryCase) -> bool:
    """Another keeper has registered the slot and sent a heartbeat; the run has finished or runs."""
    keepers = [p for p in case.lab.get("lab/status")["processes"] if p["kind"] == "keeper"]
    slots = case.lab.get("pool/list")["workers"]
    beating = [s for s in slots if s["heartbeat_at"] > case.since and s["status"] in ("idle", "training")]
    first = case.experiment(case.running)
    known = first["status"] in FINISHED or (
        first["status"] == "running" and (first["attempt"] > 1 or lives(case.script))
    )
    newest = keepers[-1]["pid"] if keepers else None
    return known and bool(beating) and newest not in (None, case.keeper)


@dataclass(frozen=True)
class Repair:
    """How to tell that a victim's death is repaired, its bound in seconds, and when to strike."""

    bound_s: float
    done: Callable[[RecoveryCase], bool]
    strike: Callable[[RecoveryCase], float] = strike

    def within_s(self, number: signal.Signals) -> float:
        return self.bound_s + (SILENT_S if number == signal.SIGSTOP else 0.0)


REPAIRS = {
    "train child": Repair(RUN_DEATH_S, trains_again),
    "horse": Repair(RUN_DEATH_S, trains_again),
    "RQ worker": Repair(RUN_DEATH_S, trains_again),
    "keeper": Repair(KEEPER_S, is_kept_again),
    "workers' supervisor": Repair(KEEPER_S, is_kept_again),
    "web": Repair(PROCESS_S, answers),
    "events": Repair(PROCESS_S, delivers, strike_holding_an_event),
    "clock": Repair(PROCESS_S, firings, strike_before_a_firing),
    "Redis": Repair(PROCESS_S, writes),
}


# -- the bench


@dataclass(frozen=True)
class RecoveryOutcome:
    """One row of the table."""

    victim: str
    number: signal.Signals
    seconds: float
    run: str
    """The status and attempt of the run by then."""
    faults: Sequence[str] = ()

    @property
    def within_s(self) -> float:
        return REPAIRS[self.victim].within_s(self.number)

    @property
    def passed(self) -> bool:
        return self.seconds <= self.within_s and not self.faults


def measure(victim: str, number: signal.Signals, folder: Path) -> RecoveryOutcome:
    """Start a lab, let it train, send the signal, and wait until it works again."""
    repair = REPAIRS[victim]
    with running_lab(folder, BY_DEFAULT) as lab:
        lab.start()
        lab.setup(TAG, **{"budgets.base_s": RUN_S})
        running = lab.submit(TAG, config_delta={"SECONDS": RUN_S})
        waiting = lab.submit(TAG, config_delta={"SECONDS": RUN_S})
        script = lab.until_training(running)
        keeper = lab.process("-m workers.keeper").pid
        case = RecoveryCase(lab, VICTIMS[victim](lab), script, keeper, running, waiting, number)
        case.since = case.clock()["now"]
        begun = repair.strike(case)
        lab.until(lambda: repair.done(case), "it works again", every_s=0.1)
        seconds = time.monotonic() - begun
        found = case.experiment(running)
        violations = lab.post("lab/audit")["violations"]
        return RecoveryOutcome(
            victim, number, seconds, f"{found['status']}, attempt {found['attempt']}", violations
        )


def show(outcomes: Sequence[RecoveryOutcome], bench: Bench) -> None:
    """Print the table, and below it the faults."""
    table = Table("victim", "signal", "seconds", "bound", "", "the run", title="repaired after")
    for o in outcomes:
        verdict = "pass" if o.passed else "FAIL"
        if not o.passed:
            bench.missed.append(f"{o.victim}, {o.number.name}")
        table.add_row(o.victim, o.number.name, f"{o.seconds:.1f}", f"{o.within_s:.0f}", verdict, o.run)
    bench.console.print(table)
    for o in outcomes:
        for fault in o.faults:
            bench.console.print(f"{o.victim}, {o.number.name}: {fault}", markup=False)


def start_s() -> float:
    """Seconds that a process takes to import its modules; part of each repair by a new process."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-P", "-c", "import triggers.events"], check=True)
    return time.monotonic() - begun


@click.command()
@click.option("--victim", "victims", multiple=True, type=click.Choice(list(REPAIRS)), help="default: all")
@click.option("--at-once", default=1, show_default=True, type=click.IntRange(1), help="labs side by side")
def main(victims: tuple[str, ...], at_once: int) -> None:
    """Kill and stop each kind of process once; exits with 1 if a repair takes longer than its bound."""
    bench, start = Bench(None), start_s()
    cases = list(itertools.product(victims or REPAIRS, SIGNALS))

    def one(case: tuple[str, signal.Signals]) -> RecoveryOutcome:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                outcome = measure(*case, Path(folder))
            except AssertionError as problem:  # the lab did not start, or did not recover
                faults = [str(problem), *getattr(problem, "__notes__", [])]
                outcome = RecoveryOutcome(*case, float("inf"), "", faults)
        click.echo(f"{outcome.victim}, {outcome.number.name}: {outcome.seconds:.1f} s", err=True)
        return outcome

    with ThreadPoolExecutor(at_once) as together:
        outcomes = list(together.map(one, cases))
    show(outcomes, bench)
    bench.end(
        f"{at_once} labs at once, a process started in {start:.1f} s before and {start_s():.1f} s after"
    )


if __name__ == "__main__":
    main()
