"""The users of `bench.chaos`: agents, readers and subscribers. They repeat unanswered calls."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from functions.kernel.process.meters import HELD_MOST_S
from functions.trust.rules.audit_tags import Acknowledged
from tests.journeys.running import RunningLab

TAG = "chaos"
CONFIRMED = "sure"
"""A tag whose keeps are retested."""
BRANCHING = "forest"
"""A tag in which three traces grow."""
GIVE_UP_S = 240.0
"""Seconds after which a repeated call counts as not answered."""


@dataclass
class LoopHolds:
    """Counts of held event loops, from the metrics of web processes."""

    a_while: float = 0.0
    """For 0.1 s of CPU time or more."""
    too_long: float = 0.0
    """For over 0.25 s."""

    def add(self, metrics: str) -> None:
        families = {family.name: family for family in text_string_to_metric_families(metrics)}
        found = families["nightjar_event_loop_held_seconds"].samples
        counts = {sample.labels["le"]: sample.value for sample in found if "le" in sample.labels}
        every = counts.get("+Inf", 0.0)
        self.a_while += every
        self.too_long += every - counts.get(str(HELD_MOST_S), 0.0)


@dataclass
class Book:
    """The answers that users got, to compare with the lab at the end."""

    finished: dict[str, tuple[str, float | None]] = field(default_factory=dict)
    """Acknowledged results: status and value of each experiment that an agent has reported."""
    submitted: list[str] = field(default_factory=list)
    pulled: dict[str, Acknowledged] = field(default_factory=dict)
    """Acknowledged results of the swarm's workers."""
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: int = 0
    repeats: int = 0
    outages: list[float] = field(default_factory=list)
    """Seconds until the answer of each call that needed more than one try."""
    faults: list[str] = field(default_factory=list)
    expired: int = 0
    """Submits after the end of their selection's lease; they may happen while Redis is away."""
    hostile: list[str] = field(default_factory=list)
    """Submitted experiments of hostile agents."""
    secrets: list[str] = field(default_factory=list)
    """Texts that no log may hold."""
    held: LoopHolds = field(default_factory=lambda: LoopHolds())


class User(ABC):
    """A client of the lab that repeats unanswered calls, as agents do."""

    def __init__(self, lab: RunningLab, book: Book, stop: threading.Event, seed: str, token: str) -> None:
        self.name = seed
        self.lab = lab
        self.book = book
        self.stop = stop
        self.chance = random.Random(seed)
        self.headers = {"authorization": f"Bearer {token}"}
        self.http = self.client()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=str(self.lab.http.base_url), headers=self.headers, timeout=20.0)

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

    def submit(self, selected: dict[str, Any] | None = None) -> None:
        """Submit one idea, based on the selection if there is one, and follow it to its end."""
        config = {"SECONDS": round(self.chance.uniform(0.2, 2.0), 2), "VALUE": 1 + self.chance.random()}
        submitted = self.call(
            "experiment/submit",
            key=True,
            **idea(self.chance, self.lab.base, self.tag),
            config_delta=config,
            **({"selection_id": selected["selection_id"]} if selected else {}),
        )
        if selected and came_too_late(submitted, selected):
            self.book.expired += 1
            return
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


def came_too_late(submitted: httpx.Response, selected: dict[str, Any]) -> bool:
    """Whether a submit was refused because its selection's lease has really ended, as while Redis is away."""
    return (
        submitted.status_code == 409
        and submitted.json().get("code") == "selection_expired"
        and datetime.fromisoformat(selected["lease_expires_at"]) <= datetime.now(UTC)
    )


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
            self.submit(selected)


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
        self.http = self.client()
        with self.http:
            self.follow(lambda: bool(self.seen) and self.seen[-1] == newest)
