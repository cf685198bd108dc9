"""Load under random kills; then checks that every acknowledged result exists exactly once, and audits the lab.

    .venv/bin/python -P -m bench.chaos --minutes 15

Starts a real lab (`./nightjar up`, its own Redis, two CPU slots, all intervals a tenth of the default) with agents,
readers, operators and event subscribers, and kills or stops one process every few seconds.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import httpx
import psutil

from tests.journeys.running import TRAIN, RunningLab, running_lab

TAG = "chaos"
CONFIRMED = "sure"
"""A tag whose keeps are retested."""
BRANCHING = "forest"
"""A tag in which three traces grow."""
SLOTS = 2
SETTLE_S = 180.0
GIVE_UP_S = 240.0
"""How long a call is repeated before it counts as not answered."""

PAUSES_S = (2.0, 8.0)
"""Seconds between two kills, at least and at most."""
SETTINGS = {
    "NIGHTJAR_SILENT_S": "3",
    "NIGHTJAR_START_GRACE_S": "3",
    "NIGHTJAR_WORKER_COOLDOWN_S": "2",
    # with everysec Redis answers writes while it syncs earlier ones, and appends them to its file after that
    "NIGHTJAR_REDIS_APPENDFSYNC": "always",
}

NOISY = TRAIN.replace("VALUE = 1.0\n", "VALUE = 1.0\nSEED = 1\n").replace(
    "{VALUE + prepare.OFFSET}", "{VALUE + prepare.OFFSET + SEED % 7 / 10 * (VALUE % 0.01) * 100}"
)
"""A script whose value depends on the seed, and differently in each script."""

VICTIMS: dict[str, tuple[str, ...]] = {
    "web": ("-m triggers.web",),
    "events": ("-m triggers.events",),
    "clock": ("-m triggers.clock",),
    "supervisor": ("-m workers.supervisor",),
    "keeper": ("-m workers.keeper",),
    "RQ worker or horse": ("-m workers.gpu",),
    "train child": ("train.py",),
    "Redis": ("redis-server",),
}
"""Words of each victim's command line; one matching process is chosen at random."""


@dataclass
class Book:
    """The answers that users got, to compare with the lab at the end."""

    finished: dict[str, tuple[str, float | None]] = field(default_factory=dict)
    """Acknowledged results: status and value of each experiment that an agent has reported."""
    submitted: list[str] = field(default_factory=list)
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: int = 0
    repeats: int = 0
    outages: list[float] = field(default_factory=list)
    """Seconds until the answer of each call that needed more than one try."""
    faults: list[str] = field(default_factory=list)


class User(ABC):
    """A client of the lab that repeats unanswered calls, as agents do."""

    def __init__(self, lab: RunningLab, book: Book, stop: threading.Event, seed: str) -> None:
        self.lab = lab
        self.book = book
        self.stop = stop
        self.chance = random.Random(seed)
        self.http = httpx.Client(base_url=str(lab.http.base_url), timeout=20.0)

    def call(self, path: str, *, key: bool = False, **body: Any) -> httpx.Response:
        """POST until there is a final answer."""
        headers = {"Idempotency-Key": uuid.uuid4().hex} if key else {}
        return self.repeated(lambda: self.http.post(f"/api/{path}", json=body, headers=headers), path)

    def repeated(self, ask: Callable[[], httpx.Response], what: str) -> httpx.Response:
        begun, tries = time.monotonic(), 0
        while True:
            tries += 1
            with contextlib.suppress(httpx.TransportError):
                answer = ask()
                in_flight = answer.status_code == 409 and "retry_after" in answer.json()
                if answer.status_code < 500 and not in_flight:
                    self.book.calls += 1
                    if tries > 1:
                        self.book.repeats += tries - 1
                        self.book.outages.append(time.monotonic() - begun)
                    return answer
                if answer.status_code not in (409, 503):
                    self.book.faults.append(f"{what}: {answer.status_code} {answer.text[:300]}")
            if time.monotonic() - begun > GIVE_UP_S:
                raise TimeoutError(f"{what} was not answered for {GIVE_UP_S:.0f} s")
            time.sleep(self.chance.uniform(0.05, 0.3))

    def run(self) -> None:
        """Work until `stop`; an error is recorded as a fault."""
        try:
            while not self.stop.is_set():
                self.turn()
        except Exception as problem:  # noqa: BLE001
            self.book.faults.append(f"{type(self).__name__}: {type(problem).__name__}: {problem}")
        finally:
            self.http.close()

    @abstractmethod
    def turn(self) -> None:
        """Use the lab once."""


def idea(chance: random.Random, base: str, tag: str = TAG) -> dict[str, Any]:
    """A body of register and submit."""
    return {
        "tag": tag,
        "hypothesis": f"idea {chance.random():.6f} is better",
        "category": chance.choice(("architecture", "optimizer", "hyperparams")),
        "commit_sha": base,
        "diff_summary": f"try {chance.random():.6f}",
    }


class TrainsItself(User):
    """An agent that trains without workers: registers, sometimes takes a GPU, and reports."""

    def turn(self) -> None:
        registered = self.call("experiment/register", key=True, **idea(self.chance, self.lab.base))
        if registered.status_code != 200:
            self.book.faults.append(f"register: {registered.status_code} {registered.text[:300]}")
            return
        name = registered.json()["experiment_id"]
        lease = None
        if self.chance.random() < 0.2:
            lease = self.call("pool/acquire", experiment_id=name).json()
        value = 1.0 + self.chance.random()
        if self.chance.random() < 0.15:
            answer = self.call("experiment/crash", experiment_id=name, error="boom")
            told: tuple[str, float | None] = (answer.json().get("status", ""), None)
        else:
            answer = self.call("experiment/complete", experiment_id=name, val_bpb=value)
            told = (answer.json().get("status", ""), value)
        if answer.status_code == 200:
            self.book.finished[name] = told
        else:
            self.book.faults.append(f"{name}: {answer.status_code} {answer.text[:300]}")
        if lease and lease.get("acquired"):
            self.call("pool/release", experiment_id=name, gpu_id=lease["gpu_id"], fence=lease["fence"])
        time.sleep(self.chance.uniform(0.05, 0.3))


class LetsTrain(User):
    """An agent that submits, waits for the outcome, and sometimes stops a run."""

    tag = TAG

    def turn(self) -> None:
        self.submit()

    def submit(self, **made_from: str) -> None:
        config = {"SECONDS": round(self.chance.uniform(0.2, 2.0), 2), "VALUE": 1 + self.chance.random()}
        submitted = self.call(
            "experiment/submit",
            key=True,
            **idea(self.chance, self.lab.base, self.tag),
            config_delta=config,
            **made_from,
        )
        if submitted.status_code != 200:
            self.book.faults.append(f"submit: {submitted.status_code} {submitted.text[:300]}")
            return
        name = submitted.json()["experiment_id"]
        self.book.submitted.append(name)
        if self.chance.random() < 0.1:
            time.sleep(self.chance.uniform(0, 2))
            self.call("experiment/stop", experiment_id=name)
        while not self.stop.is_set():
            waited = self.repeated(
                lambda: self.http.get(f"/api/experiment/{name}/wait?timeout=10&until=finished"), "wait"
            )
            if waited.json()["status"] not in ("registered", "queued", "leased", "running"):
                return


class LetsConfirm(LetsTrain):
    """The same in a tag that retests its keeps."""

    tag = CONFIRMED


class Branches(LetsTrain):
    """The same with a selected trace; sometimes it does not use its selection."""

    tag = BRANCHING

    def turn(self) -> None:
        body = {"tag": BRANCHING, "agent": "branches", "wait": 5}
        selected = self.call("trace/select", key=True, **body).json()
        if selected.get("status") == "selected" and self.chance.random() < 0.8:
            self.submit(selection_id=selected["selection_id"])


class LooksOn(User):
    """Readers and an operator: sweeps, briefs, summaries, drains."""

    def turn(self) -> None:
        what = self.chance.randrange(6)
        if what == 0:
            self.call("pool/sweep")
        elif what == 1:
            self.call("pool/dispatch")
        elif what == 2:
            self.call("search/suggest", tag=TAG)
        elif what == 3:
            self.call("report/summary", tag=TAG)
        elif what == 4:
            self.call("experiment/history", tag=TAG, limit=50)
        else:
            gpus = self.repeated(lambda: self.http.get("/api/pool/list"), "pool list").json()["workers"]
            if gpus:
                gpu_id = self.chance.choice(gpus)["gpu_id"]
                self.call("pool/drain", gpu_id=gpu_id)
                time.sleep(self.chance.uniform(0.1, 1.0))
                self.call("pool/drain", gpu_id=gpu_id, undo=True)
        time.sleep(self.chance.uniform(0.1, 1.0))


class Subscribes(User):
    """Follows the event stream, and resumes from the last event seen after a cut."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: list[str] = []

    def turn(self) -> None:
        leave = time.monotonic() + self.chance.uniform(2, 20)
        with contextlib.suppress(httpx.TransportError):
            self.follow(lambda: self.stop.is_set() or time.monotonic() > leave)
        time.sleep(0.1)

    def follow(self, enough: Callable[[], bool]) -> None:
        """Read from the last event seen on."""
        headers = {"Last-Event-ID": self.seen[-1] if self.seen else "0"}
        with self.http.stream("GET", "/api/events", headers=headers) as stream:
            event_id = ""
            for line in stream.iter_lines():
                if line.startswith("id: "):
                    event_id = line.removeprefix("id: ")
                elif line.startswith("data: "):
                    self.seen.append(event_id)
                elif line == "event: reset":
                    self.book.faults.append("a subscriber was told of a gap")
                if enough():
                    return

    def catch_up(self, newest: str) -> None:
        """Read until this event, after the load has ended."""
        self.http = httpx.Client(base_url=str(self.lab.http.base_url), timeout=20.0)
        with self.http:
            self.follow(lambda: bool(self.seen) and self.seen[-1] == newest)


def kill_one(lab: RunningLab, book: Book, chance: random.Random) -> None:
    """Send SIGKILL or SIGSTOP to one process of the lab."""
    name = chance.choice(list(VICTIMS))
    number = signal.SIGSTOP if chance.random() < 0.3 else signal.SIGKILL
    found = lab.processes(*VICTIMS[name])
    if not found:
        return
    with contextlib.suppress(psutil.Error):
        chance.choice(found).send_signal(number)
        book.kills[name, number.name] += 1


def events_of(lab: RunningLab) -> list[tuple[str, str, str]]:
    """Id, type and subject of every event, read from Redis directly."""
    read = [sys.executable, "-P", "-c", READ_EVENTS, str(lab.data)]
    said = subprocess.run(read, capture_output=True, text=True, check=True).stdout
    rows: list[tuple[str, str, str]] = [tuple(row) for row in json.loads(said)]
    return rows


READ_EVENTS = """
import asyncio, json, sys
from state.client import Lab
from state.embedded import redis_url
from state.settings import Settings
from state.stream import Stream

async def main():
    settings = Settings.model_validate({"data": sys.argv[1]})
    lab = Lab(settings.lab, redis_url(settings))
    stream, after, rows = Stream(lab), "0-0", []
    while page := await stream.after(after, 1000):
        rows += [(e.id, e.type, e.subject) for e in page]
        after = page[-1].id
    await lab.close()
    print(json.dumps(rows))

asyncio.run(main())
"""


def violations(lab: RunningLab, book: Book, subscribers: list[Subscribes]) -> Iterator[str]:
    """Every broken promise, as text."""
    audit = lab.post("lab/audit")
    yield from (f"audit: {v}" for v in audit["violations"])
    for name, (status, value) in book.finished.items():
        e = lab.get(f"experiment/{name}")["experiment"]
        found = (e["status"], e["val_bpb"])
        if e["claimed"] and e["measured_by"] is not None:  # by the lab's run of its code it is judged now
            found = ("discard", e["reported"])
        if found[0] != status or (value is not None and found[1] != value):
            yield f"{name} was acknowledged as {status} {value}, but is {e['status']} {e['val_bpb']}"
    for name in book.submitted:
        status = lab.status(name)
        if status not in ("keep", "discard", "crash", "stopped", "lost"):
            yield f"{name} was accepted, but is {status} at the end"
    events = events_of(lab)
    ends = Counter(subject for _, kind, subject in events if kind == "experiment.finished")
    for name in [*book.finished, *(n for n in book.submitted if lab.status(n) != "lost")]:
        if ends[name] != 1:
            yield f"the stream has {ends[name]} finishes of {name}"
    ids = [i for i, _, _ in events]
    for nth, subscriber in enumerate(subscribers):
        subscriber.catch_up(ids[-1])
        if subscriber.seen != ids:
            missed, twice = set(ids) - set(subscriber.seen), len(subscriber.seen) - len(set(subscriber.seen))
            yield f"subscriber {nth} missed {len(missed)} events and saw {twice} twice"
    yield from unsettled(lab)
    if left := lab.processes("train.py"):
        yield f"training scripts are left: {left}"
    yield from book.faults


def unsettled(lab: RunningLab) -> Iterator[str]:
    """Keeps that still wait for a retest, and unused selections."""
    for e in lab.post("experiment/history", tag=CONFIRMED, status="keep", limit=1000)["experiments"]:
        if e["trust"] == "provisional":
            yield f"{e['experiment_id']} is still provisional"
    if count := lab.post("trace/list", tag=BRANCHING)["open_selections"]:
        yield f"{count} selections are open, but no agent is at work"


def settled(lab: RunningLab) -> None:
    """Wait until nothing is queued or runs, then train once more on every slot."""

    def is_quiet() -> bool:
        pool = lab.get("pool/list")
        return bool(lab.get("lab/status")["queue"] == 0 and pool["idle"] == pool["total"] == SLOTS)

    patiently(is_quiet, "every slot is idle and nothing waits")
    last = [lab.submit(TAG) for _ in range(2 * SLOTS)]
    for name in last:
        patiently(lambda n=name: lab.status(n) in ("keep", "discard"), f"{name} is trained")  # type: ignore[misc]
    patiently(lambda: is_quiet() and not list(unsettled(lab)), "every slot is idle again, and all is settled")


def patiently(met: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + SETTLE_S
    while True:
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            if met():
                return
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {SETTLE_S:.0f} s after the last kill: {what}")
        time.sleep(0.2)


def show(book: Book, seconds: float, events: Counter[str]) -> None:
    """Print the numbers of kills, calls and results."""
    print(f"\n{'victim':<22}{'SIGKILL':>9}{'SIGSTOP':>9}")
    for victim in VICTIMS:
        kills, stops = book.kills[victim, "SIGKILL"], book.kills[victim, "SIGSTOP"]
        print(f"{victim:<22}{kills:>9}{stops:>9}")
    outages = sorted(book.outages)
    longest = f"{outages[-1]:.1f} s" if outages else "none"
    print(
        f"\nin {seconds:.0f} s: {book.calls} calls answered, {book.repeats} repeated"
        f" (longest until an answer {longest}),\n{len(book.finished)} experiments reported and"
        f" {len(book.submitted)} submitted by agents, {events.total()} events:"
        f"\n{events['experiment.retested']} retests ended, {events['experiment.confirmed']} keeps were confirmed,"
        f" {events['experiment.demoted']} demoted; {events['selection.opened']} selections,"
        f" {events['selection.committed']} committed, {events['selection.expired']} expired"
    )


def chaos(lab: RunningLab, seconds: float, seed: int) -> tuple[Book, list[str]]:
    """Load and kills for `seconds`; returns the book and all violations."""
    book, stop, chance = Book(), threading.Event(), random.Random(seed)
    lab.base = lab.commit({"train.py": NOISY})
    lab.start("--cpu", str(SLOTS))
    lenient = {"max_attempts": 20, "crash_limit": 1000}
    lab.setup(TAG, **lenient)
    lab.setup(CONFIRMED, **lenient, keep_rule="confirmed")
    traces = {"mode": "multi", "max_parallel": 6, "lease_ttl_s": 5, "dead_after_crashes": 100}
    lab.setup(BRANCHING, **lenient, traces=traces)
    subscribers = [Subscribes(lab, book, stop, f"{seed}/subscriber/{n}") for n in range(3)]
    users: list[User] = [*subscribers]
    for kind, count in ((TrainsItself, 4), (LetsTrain, 2), (LetsConfirm, 2), (Branches, 2), (LooksOn, 2)):
        users += [kind(lab, book, stop, f"{seed}/{kind.__name__}/{n}") for n in range(count)]
    threads = [threading.Thread(target=user.run, name=type(user).__name__) for user in users]
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    try:
        while (left := begun + seconds - time.monotonic()) > 0:
            time.sleep(min(left, chance.uniform(*PAUSES_S)))
            kill_one(lab, book, chance)
            print(
                f"\r{time.monotonic() - begun:5.0f} s  {sum(book.kills.values())} kills,"
                f" {len(book.finished)} reported, {len(book.submitted)} submitted",
                end="",
                file=sys.stderr,
                flush=True,
            )
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    print(file=sys.stderr)
    try:
        settled(lab)
        found = list(violations(lab, book, subscribers))
    except TimeoutError as problem:
        found = [str(problem), *book.faults]
    show(book, time.monotonic() - begun, Counter(kind for _, kind, _ in events_of(lab)))
    return book, found


@click.command()
@click.option("--minutes", type=click.FloatRange(0.1, 60), default=15.0, show_default=True)
@click.option("--seed", type=int, default=None, help="decides the kills; default: random")
def main(minutes: float, seed: int | None) -> None:
    """Kill a lab's processes under load, and check that nothing was lost."""
    seed = random.randrange(10**6) if seed is None else seed
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder, running_lab(Path(folder), **SETTINGS) as lab:
        _, found = chaos(lab, minutes * 60, seed)
        for violation in found:
            print(f"VIOLATION: {violation}")
        if found:
            print(lab.story(), file=sys.stderr)
    if found:
        raise SystemExit(1)
    print("audit: no violation; every acknowledged result exists once; every subscriber saw every event once")


if __name__ == "__main__":
    main()
