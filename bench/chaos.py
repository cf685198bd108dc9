"""Load under random kills; then checks that every acknowledged result exists exactly once, and audits the lab.

    .venv/bin/python -P -m bench.chaos --minutes 15

It starts a real lab (`./nightjar up`) with its own Redis, two CPU slots, and all intervals a tenth of the default. A
remote worker reaches the lab by HTTP alone. Agents, workers of a swarm, readers, operators and event subscribers use
it. Every few seconds the bench kills or stops one process, or cuts the remote worker's network for a while. Hostile
agents do the worst that their tokens allow (`bench/_hostile.py`), which must not harm the others.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import httpx
import psutil

from bench._hostile import HOSTILE, hostile_users, with_evil
from bench._swarm_users import Pulls, open_swarm, swarm_faults
from bench._users import (
    BRANCHING,
    CONFIRMED,
    TAG,
    Book,
    Branches,
    LetsConfirm,
    LetsTrain,
    LooksOn,
    Subscribes,
    TrainsItself,
    User,
)
from functions.kernel.process.meters import HELD_MOST_S
from tests.journeys.anywhere import RemoteWorker, remote_worker
from tests.journeys.running import TRAIN, RunningLab, running_lab

SLOTS = 2
"""CPU slots of the lab's own worker. The remote worker has one."""
SETTLE_S = 180.0
PAUSES_S = (2.0, 8.0)
"""Seconds between two kills, at least and at most."""
SETTINGS = {
    "NIGHTJAR_SILENT_S": "3",
    "NIGHTJAR_RATE_PER_S": "1000",  # what is checked at the end is asked for fast
    # with `everysec` Redis answers writes before it has appended them to its file
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
"""Words of each victim's command line. One matching process is chosen at random."""
FAR_VICTIMS: dict[str, tuple[str, ...]] = {
    "remote keeper": ("-m workers.keeper",),
    "remote asker": ("-m workers.asker",),
    "remote trainer": ("-m workers.trainer",),
}
"""The same for the remote worker. Its supervisor is left out: no process would restart it."""
NETWORK = "remote network"
HELD = re.compile(r" was held for (\d+\.\d+) s ")
"""Pattern of a log line that says how long the event loop was held."""
WORK, WORK_S = 1_000_000, 0.037
"""Squares to add up, and their CPU seconds on the machine where HELD_MOST_S was chosen."""
CUT_S = (1.0, 12.0)
"""Shortest and longest cut of the network in seconds. Some are longer than a lease."""


def kill_one(lab: RunningLab, far: RemoteWorker, book: Book, chance: random.Random) -> None:
    """Send SIGKILL or SIGSTOP to one process, or cut the network for a while."""
    name = chance.choice([*VICTIMS, *FAR_VICTIMS, NETWORK])
    if name == NETWORK:
        far.wire.cut()
        threading.Timer(chance.uniform(*CUT_S), far.wire.mend).start()
        book.kills[name, "SIGSTOP"] += 1
        return
    number = signal.SIGSTOP if chance.random() < 0.3 else signal.SIGKILL
    found = far.processes(*FAR_VICTIMS[name]) if name in FAR_VICTIMS else lab.processes(*VICTIMS[name])
    if not found:
        return
    if name == "web":
        read_meter(lab, book)
    with contextlib.suppress(psutil.Error):
        chance.choice(found).send_signal(number)
        book.kills[name, number.name] += 1


def read_meter(lab: RunningLab, book: Book) -> None:
    """Note how often the web process, which is about to be killed, was held. A stopped or new one does not answer."""
    with contextlib.suppress(httpx.HTTPError):
        answer = lab.http.get("/metrics", timeout=5.0)
        if answer.is_success:
            book.held.add(answer.text)


@dataclass(frozen=True)
class StreamEvent:
    """One event of the stream."""

    id: str
    type: str
    subject: str
    data: Mapping[str, Any]


def events_of(lab: RunningLab) -> list[StreamEvent]:
    """Every event, read from Redis directly."""
    read = [sys.executable, "-P", "-c", READ_EVENTS, str(lab.data)]
    said = subprocess.run(read, capture_output=True, text=True, check=True).stdout
    return [StreamEvent(*row) for row in json.loads(said)]


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
        rows += [(e.id, e.type, e.subject, dict(e.data)) for e in page]
        after = page[-1].id
    await lab.close()
    print(json.dumps(rows))

asyncio.run(main())
"""


def violations(
    lab: RunningLab, far: RemoteWorker, book: Book, subscribers: list[Subscribes]
) -> Iterator[str]:
    """Every broken promise, as text."""
    audit = lab.post("lab/audit")
    yield from (f"audit: {v}" for v in audit["violations"])
    for name, (status, value) in book.finished.items():
        e = lab.get(f"experiment/{name}")["experiment"]
        found = (e["status"], e["val_bpb"])
        if e["claimed"] and e["measured_by"] is not None:  # it is judged by the lab's own run of its code now
            found = ("discard", e["reported"])
        if found[0] != status or (value is not None and found[1] != value):
            yield f"{name} was acknowledged as {status} {value}, but is {e['status']} {e['val_bpb']}"
    for name in (*book.submitted, *book.hostile):
        status = lab.status(name)
        if status not in ("keep", "discard", "crash", "timeout", "invalid", "stopped", "lost"):
            yield f"{name} was accepted, but is {status} at the end"
    yield from swarm_faults(lab, book)
    events = events_of(lab)
    ends = Counter(run for e in events if (run := ended_by(e)) is not None)
    values = [name for name, sent in book.pulled.items() if sent.value is not None]
    for name in [*book.finished, *values, *(n for n in book.submitted if lab.status(n) != "lost")]:
        if ends[name] != 1:
            yield f"the stream has {ends[name]} finishes of {name}"
    ids = [e.id for e in events]
    for nth, subscriber in enumerate(subscribers):
        subscriber.catch_up(ids[-1])
        if subscriber.seen != ids:
            missed, twice = set(ids) - set(subscriber.seen), len(subscriber.seen) - len(set(subscriber.seen))
            yield f"subscriber {nth} missed {len(missed)} events and saw {twice} twice"
    yield from unsettled(lab)
    if left := [*lab.processes("train.py"), *far.processes("train.py")]:
        yield f"training scripts are left: {left}"
    if kept := far.spooled():
        yield f"results never reached the lab: {kept}"
    if not any(e.data.get("gpu_id") in {slot["gpu_id"] for slot in far.slots()} for e in events):
        yield "the worker without Redis had no run"
    yield from taken_out(events)
    yield from secrets_told(lab, book, [*logs(lab.data), *logs(far.data)])
    most_s = HELD_MOST_S * slowness()
    lines = {line for file in logs(lab.data) for line in file.read_text().splitlines()}
    yield from sorted(
        f"longer than {most_s:.2f} s: {line}"
        for line in lines
        if (told := HELD.search(line)) and float(told[1]) > most_s
    )
    yield from book.faults


def slowness() -> float:
    """Time of fixed work, relative to the machine where HELD_MOST_S was chosen; at least 1."""
    taken = []
    for _ in range(5):
        began = time.thread_time()
        sum(n * n for n in range(WORK))
        taken.append(time.thread_time() - began)
    return max(1.0, median(taken) / WORK_S)


def ended_by(e: StreamEvent) -> str | None:
    """The run whose end this event reports. A retest counts if it ended with a value."""
    if e.type == "experiment.finished":
        return e.subject
    measured = e.type == "experiment.retested" and e.data.get("status") == "measured"
    return str(e.data["experiment_id"]) if measured else None


def taken_out(events: Sequence[StreamEvent]) -> Iterator[str]:
    """GPUs that were taken out although only hostile agents' runs have crashed on them."""
    row: dict[str, set[str]] = {}
    for e in events:
        if e.type == "experiment.finished" and (gpu_id := e.data.get("gpu_id")):
            tag = e.subject.rpartition("-")[0]
            if e.data.get("status") in ("keep", "discard"):
                row.pop(gpu_id, None)
            else:
                row.setdefault(gpu_id, set()).add(tag)
        elif e.type == "gpu.unhealthy" and "have crashed on it" in str(e.data.get("reason")):
            tags = row.pop(e.subject, set())
            if tags <= {HOSTILE}:
                yield f"{e.subject} was taken out for runs of {HOSTILE} alone"


def secrets_told(lab: RunningLab, book: Book, files: Sequence[Path]) -> Iterator[str]:
    """Logs that hold a token or the password of Redis."""
    redis = json.loads((lab.data / "redis.json").read_text())
    secrets = [*book.secrets, *(str(value) for name, value in redis.items() if "password" in name)]
    for file in files:
        text = file.read_text(errors="replace")
        yield from (f"{file.name} holds a secret" for secret in secrets if secret in text)


def logs(data: Path) -> list[Path]:
    return [file for file in (data / "logs").rglob("*") if file.is_file()]


def kept_logs(folder: Path, seed: int) -> Path:
    """Copy the whole logs of every process in `folder`, which is deleted at the end, to a new temporary folder."""
    kept = Path(tempfile.mkdtemp(prefix=f"nightjar-chaos-{seed}-"))
    for found in folder.glob("*/logs"):
        shutil.copytree(found, kept / found.parent.name)
    return kept


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
        return bool(lab.get("lab/status")["queue"] == 0 and pool["idle"] == pool["total"] == SLOTS + 1)

    patiently(lab, is_quiet, "every slot is idle and nothing waits")
    last = [lab.submit(TAG) for _ in range(2 * SLOTS)]
    for name in last:
        patiently(lab, lambda n=name: lab.status(n) in ("keep", "discard"), f"{name} is trained")  # type: ignore[misc]
    patiently(
        lab, lambda: is_quiet() and not list(unsettled(lab)), "every slot is idle again, and all is settled"
    )


def patiently(lab: RunningLab, met: Callable[[], bool], what: str) -> None:
    """Wait while the queue gets shorter, however slow the machine is."""
    shortest, give_up = math.inf, time.monotonic() + SETTLE_S
    while True:
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            if met():
                return
            waiting = lab.get("lab/status")["queue"]
            if waiting < shortest:
                shortest, give_up = waiting, time.monotonic() + SETTLE_S
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {SETTLE_S:.0f} s in which {shortest:g} wait: {what}")
        time.sleep(0.2)


def show(book: Book, seconds: float, events: Counter[str]) -> None:
    print(f"\n{'victim':<22}{'SIGKILL':>9}{'SIGSTOP':>9}")
    for victim in (*VICTIMS, *FAR_VICTIMS, NETWORK):
        kills, stops = book.kills[victim, "SIGKILL"], book.kills[victim, "SIGSTOP"]
        print(f"{victim:<22}{kills:>9}{stops:>9}")
    outages = sorted(book.outages)
    longest = f"{outages[-1]:.1f} s" if outages else "none"
    print(
        f"\nin {seconds:.0f} s: {book.calls} calls answered, {book.repeats} repeated"
        f" (longest until an answer {longest}),\n{len(book.finished)} experiments reported and"
        f" {len(book.submitted)} submitted by agents, {len(book.pulled)} results of a swarm"
        f" ({sum(sent.is_stopped for sent in book.pulled.values())} of stopped runs), {events.total()} events:"
        f"\n{events['experiment.retested']} retests ended, {events['experiment.confirmed']} keeps were confirmed,"
        f" {events['experiment.demoted']} demoted; {events['selection.opened']} selections,"
        f" {events['selection.committed']} committed, {events['selection.expired']} expired"
        f" ({book.expired} submits came after it);"
        f"\n{len(book.hostile)} hostile runs, {len(book.secrets)} tokens; the web process's event loop was held"
        f" {book.held.a_while:.0f} times for over 0.1 s of CPU time, {book.held.too_long:.0f} times for over 0.25 s"
    )


def chaos(lab: RunningLab, seconds: float, seed: int) -> tuple[Book, list[str]]:
    """Load and kills for `seconds`; returns the book and all violations."""
    book = Book()
    lab.base = lab.commit({"train.py": with_evil(NOISY)})
    lab.start("--cpu", str(SLOTS))

    def token(role: str) -> str:
        issued = lab.post(
            "token/issue",
            name=f"{role}-{len(book.secrets)}",
            role=role,
            **({"tags": [HOSTILE]} if role == "agent" else {}),
        )
        book.secrets.append(issued["token"])
        return book.secrets[-1]

    lab.http.headers["authorization"] = f"Bearer {token('operator')}"
    with remote_worker(lab, lab.data.parent / "far", token=token("worker")) as far:
        far.start()
        return book, list(loaded(lab, far, seconds, seed, book, token))


def loaded(
    lab: RunningLab, far: RemoteWorker, seconds: float, seed: int, book: Book, token: Callable[[str], str]
) -> Iterator[str]:
    """The violations after load and kills for `seconds`."""
    stop, chance = threading.Event(), random.Random(seed)
    lenient = {"max_attempts": 20, "crash_limit": 1000}
    lab.setup(TAG, **lenient)
    lab.setup(CONFIRMED, **lenient, keep_rule="confirmed")
    traces = {"mode": "multi", "max_parallel": 6, "lease_ttl_s": 5, "dead_after_crashes": 100}
    lab.setup(BRANCHING, **lenient, traces=traces)
    open_swarm(lab)
    subscribers = [Subscribes(lab, book, stop, f"{seed}/subscriber/{n}", token("operator")) for n in range(3)]
    users: list[User] = [*subscribers]
    kinds = ((TrainsItself, 4), (LetsTrain, 2), (LetsConfirm, 2), (Branches, 2), (LooksOn, 2), (Pulls, 3))
    for kind, count in kinds:
        users += [
            kind(lab, book, stop, f"{seed}/{kind.__name__}/{n}", token("operator")) for n in range(count)
        ]
    users += hostile_users(lab, book, stop, str(seed), token)
    threads = [threading.Thread(target=user.run, name=type(user).__name__) for user in users]
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    try:
        while (left := begun + seconds - time.monotonic()) > 0:
            time.sleep(min(left, chance.uniform(*PAUSES_S)))
            kill_one(lab, far, book, chance)
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
        read_meter(lab, book)
        yield from violations(lab, far, book, subscribers)
    except TimeoutError as problem:
        yield from (str(problem), *book.faults)
    show(book, time.monotonic() - begun, Counter(e.type for e in events_of(lab)))


@click.command()
@click.option("--minutes", type=click.FloatRange(0.1, 60), default=15.0, show_default=True)
@click.option("--seed", type=int, default=None, help="decides the kills; default: random")
def main(minutes: float, seed: int | None) -> None:
    """Kill a lab's processes under load, and check that nothing was lost."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the lab ends with it
    seed = random.randrange(10**6) if seed is None else seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, running_lab(Path(folder), **SETTINGS) as lab:
        _, found = chaos(lab, minutes * 60, seed)
        for violation in found:
            print(f"VIOLATION: {violation}")
        if found:
            print(lab.story(), file=sys.stderr)
            print(f"all logs: {kept_logs(Path(folder), seed)}", flush=True)
    if found:
        raise SystemExit(1)
    print("audit: no violation; every acknowledged result exists once; every subscriber saw every event once")


if __name__ == "__main__":
    main()
