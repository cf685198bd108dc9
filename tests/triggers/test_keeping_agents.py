"""When `nightjar agent` starts a process again: usage limits, open experiments, failures. Its pauses take no time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from triggers.agents.keeper import LONGEST_LIMIT_S, AgentOrders, KeptAgent, Patience
from triggers.agents.place import AgentFolder

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

EVENING = datetime(2026, 11, 26, 22, 15).timestamp()  # noqa: DTZ001 - local, as the words of tools are
HOUR = 3600.0


class Night:
    """A pretended lab, and a clock that runs while the agent rests."""

    def __init__(self, folder: Path) -> None:
        self.now = EVENING
        self.starts: list[float] = []
        self.said: list[str] = []
        self.announced: list[Mapping[str, Any]] = []
        self.ends_at = EVENING + 12 * HOUR
        self.brief: dict[str, Any] = {
            "tag": "t",
            "paused": False,
            "budget": None,
            "open_experiments": [],
            "open_selections": [],
            "last_results": [],
        }
        self.at_start: Callable[[], None] = lambda: None
        self.at_rest: Callable[[], None] = lambda: None
        self.place = AgentFolder(folder / "t" / "ada", "t", "ada")
        self.place.clone.mkdir(parents=True)

    def ask(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if path == "report/brief":
            return {**self.brief, "paused": self.now >= self.ends_at}
        if body["starts"] > len(self.starts):
            self.starts.append(self.now)
            self.at_start()
        self.announced.append(body)
        return {}

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.at_rest()
        await asyncio.sleep(0)

    def kept(self, script: str, *, starts: int = 3) -> str:
        """Keep `sh -c script` at work; why its night was over."""
        environment = {"PATH": os.environ["PATH"]}
        orders = AgentOrders(
            ["sh", "-c", script], "http://lab", "nightjar", environment, Patience(0, 600, starts)
        )
        agent = KeptAgent(
            self.place, orders, None, self.ask, self.said.append, clock=lambda: self.now, sleep=self.sleep
        )
        return asyncio.run(agent.keep())

    def pauses(self) -> list[float]:
        return [after - before for before, after in zip(self.starts, self.starts[1:], strict=False)]

    def entered(self, name: str, agent: str | None, status: str = "queued") -> None:
        self.brief["open_experiments"].append({"experiment_id": name, "status": status, "agent": agent})

    def finished(self, name: str) -> None:
        (found,) = [e for e in self.brief["open_experiments"] if e["experiment_id"] == name]
        self.brief["open_experiments"].remove(found)
        self.brief["last_results"].append({**found, "status": "keep"})


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path)


def test_a_limit_that_says_when_it_ends_is_waited_for(night: Night) -> None:
    night.ends_at = EVENING + 5 * HOUR

    why = night.kept('cat >/dev/null; echo "usage limit reached, resets 3am"; exit 1', starts=1)

    assert why == "t is paused"
    three = datetime(2026, 11, 27, 3).timestamp()  # noqa: DTZ001
    assert night.starts[:2] == [EVENING, three]
    limited = [body["limit"] for body in night.announced if body["state"] == "limited"]
    assert limited[0] == {"since": EVENING, "until": three, "said": "usage limit reached, resets 3am"}


def test_the_night_ends_while_a_limit_is_waited_for(night: Night) -> None:
    night.ends_at = EVENING + HOUR

    assert night.kept("printf 'thinking\\rusage limit reached, resets 3am\\n'") == "t is paused"
    assert night.starts == [EVENING]
    assert night.now < EVENING + HOUR + 10


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("/no/such-agent --print", "/no/such-agent: not found"),
        ("echo \"error: unexpected argument '--limit' found\" >&2; exit 2", "unexpected argument '--limit'"),
    ],
)
def test_an_agent_that_fails_for_another_reason_is_given_up_with_its_last_line(
    night: Night, script: str, line: str
) -> None:
    why = night.kept(script)

    assert why.startswith("given up: 3 starts in a row came to nothing: it ended with exit code ")
    assert line in why
    assert sum(night.pauses()) < 60


@pytest.mark.parametrize("name", ["ada", None])
def test_an_agent_that_submits_and_exits_is_started_again_after_its_run(
    night: Night, name: str | None
) -> None:
    night.entered("t-0", None)  # a stranger's, which is waited for by nobody
    begun: dict[str, float] = {}

    def submit() -> None:
        begun[f"t-{len(night.starts)}"] = night.now
        night.entered(f"t-{len(night.starts)}", name)
        night.ends_at = EVENING + 24 * HOUR if len(night.starts) < 3 else 0.0

    def train() -> None:
        for run, at in begun.items():
            if night.now >= at + 300 and any(
                e["experiment_id"] == run for e in night.brief["open_experiments"]
            ):
                night.finished(run)

    night.at_start, night.at_rest = submit, train

    assert night.kept("true") == "t is paused"
    assert len(night.starts) == 3
    assert all(300 <= pause <= 310 for pause in night.pauses())
    assert "ada: is started again after t-1" in night.said


def test_one_of_two_runs_that_ends_is_something_to_do(night: Night) -> None:
    def submit() -> None:
        if len(night.starts) == 1:
            night.entered("t-1", "ada")
            night.entered("t-2", "ada")

    def train() -> None:
        if night.now > EVENING + 300 and len(night.brief["open_experiments"]) == 2:
            night.finished("t-1")

    night.at_start, night.at_rest = submit, train
    night.ends_at = EVENING + 600

    night.kept("true")

    assert len(night.starts) == 2
    assert night.starts[1] > EVENING + 300


@pytest.mark.parametrize("what", ["registered", "selection"])
def test_an_agent_that_has_something_to_do_is_started_while_its_experiment_is_open(
    night: Night, what: str
) -> None:
    night.entered("t-1", "ada", "registered" if what == "registered" else "running")
    if what == "selection":
        night.brief["open_selections"] = [{"selection_id": "t-s1"}]

    why = night.kept("true")

    assert why.startswith("given up: 3 starts")  # it did nothing with it


def test_a_limit_without_a_time_is_tried_again_up_to_an_hour_later_all_night(night: Night) -> None:
    night.ends_at = EVENING + 4 * HOUR

    why = night.kept("echo 'API Error: 429 rate_limit_error'; exit 1", starts=1)

    assert why == "t is paused"
    assert night.pauses()[:7] == [60, 120, 240, 480, 960, 1920, LONGEST_LIMIT_S]
    assert set(night.pauses()[6:]) == {LONGEST_LIMIT_S}
