"""The scripted agent works through whole nights against the web application; only the training is a stand-in's."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.formats.constants import read_constants
from functions.kernel.process.lifecycle import Process
from tests.examples.standin import EXAMPLES, Score, build, git, git_env, standing_in

pytestmark = pytest.mark.process

Json = dict[str, Any]
BASELINE = read_constants((EXAMPLES / "tinylm" / "train.py").read_text())


# -- what the stand-in measures


def every_run_is_better() -> Score:
    """Each value is a tenth below the one before."""
    values = count(30, -1)
    return lambda _: next(values) / 10


def no_change_helps(constants: Mapping[str, object]) -> float:
    return 3 + sum(constants[name] != value for name, value in BASELINE.items()) / 10


# -- the agent as a process


class Running:
    """One agent at work."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.said: list[Json] = []

    async def until(self, event: str) -> Json:
        """Read its lines up to one of this kind."""
        assert self.child.stdout is not None
        while line := await self.child.stdout.readline():
            self.said.append(json.loads(line))
            if self.said[-1]["event"] == event:
                return self.said[-1]
        raise AssertionError(f"never said {event!r}: {self.said} {await self.errors()}")

    async def end(self) -> list[Json]:
        """All that it has said, once it has ended well."""
        assert self.child.stdout is not None
        async for line in self.child.stdout:
            self.said.append(json.loads(line))
        errors = await self.errors()
        assert (await self.child.wait(), errors) == (0, ""), self.said
        return self.said

    async def errors(self) -> str:
        assert self.child.stderr is not None
        return (await self.child.stderr.read()).decode()


async def start(url: str, clone: Path, name: str, *, runs: int, patience_s: int = 90) -> Running:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-W", "error", str(EXAMPLES / "agent.py")),
        *("--url", url, "--tag", "night", "--repo", str(clone), "--name", name),
        *("--runs", str(runs), "--seed", "1", "--patience", str(patience_s), "--json"),
        env=git_env(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    return Running(child)


async def work(url: str, clone: Path, name: str, runs: int) -> list[Json]:
    return await (await start(url, clone, name, runs=runs)).end()


def clone_of(project: Path, name: str) -> Path:
    clone = project.parent / name
    git(project.parent, "clone", "--quiet", str(project), str(clone))
    return clone


async def experiments(url: str) -> list[Json]:
    """Every experiment of the tag with its patch, oldest first."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        page = (await http.post("/api/experiment/history", json={"tag": "night"})).json()
        return [
            e | {"diff": (await http.get(f"/api/experiment/{e['id']}")).json()["diff"]}
            for e in page["experiments"]
        ]


def said(lines: list[Json], event: str) -> list[Json]:
    return [line for line in lines if line["event"] == event]


async def test_a_keep_stays_and_anything_else_goes_back_to_the_best_of_all_agents(
    web: str, process: Process, project: Path
) -> None:
    alice, bob, base = clone_of(project, "alice"), clone_of(project, "bob"), git(project, "rev-parse", "HEAD")

    async with standing_in(process, web, project, every_run_is_better()) as worker:
        lines = await work(web, alice, "alice", 2)
    async with standing_in(process, web, project, no_change_helps):
        await work(web, bob, "bob", 2)

    baseline, *found = await experiments(web)
    assert [e["status"] for e in (baseline, *found)] == ["keep", "keep", "keep", "discard", "discard"]
    assert [e["parent_ids"] for e in found] == [["night-1"], ["night-2"], ["night-3"], ["night-3"]]
    assert (baseline["commit_sha"], baseline["diff"], baseline["agent"]) == (base, "", "nightjar")
    assert [e["agent"] for e in found] == ["alice", "alice", "bob", "bob"]
    assert git(alice, "branch", "--show-current") == "autoresearch/night-alice"
    assert git(alice, "rev-parse", "HEAD") == found[1]["commit_sha"]
    for clone in (alice, bob):
        assert git(clone, "show", "HEAD:train.py") == worker.scripts["night-3"].strip()
        assert git(clone, "status", "--porcelain") == ""
    assert [line["action"] for line in said(lines, "finished")] == ["keep_commit"] * 2
    for e in found:
        tried = read_constants(build(clone_of(project, e["id"]), base, e["diff"].encode()))
        assert e["config_delta"] == {n: v for n, v in tried.items() if v != BASELINE[n]}


async def test_an_agent_that_was_ended_goes_on_waiting_when_it_starts_again(
    web: str, process: Process, project: Path
) -> None:
    clone = clone_of(project, "alice")

    first = await start(web, clone, "alice", runs=3)
    await first.until("submitted")
    first.child.send_signal(signal.SIGINT)
    assert said(await first.end(), "stopped")
    second = await start(web, clone, "alice", runs=1)
    await second.until("resumed")
    async with standing_in(process, web, project, every_run_is_better()):
        again = await second.end()

    assert [line["experiment_id"] for line in said(again, "resumed")] == ["night-2"]
    assert [line["experiment_id"] for line in said(again, "finished")] == ["night-2", "night-3"]
    assert [e["parent_ids"] for e in await experiments(web)] == [[], ["night-1"], ["night-2"]]


async def test_work_of_somebody_is_left_alone_and_a_lab_that_is_gone_is_given_up_in_one_line(
    web: str, project: Path
) -> None:
    gone = await start("http://127.0.0.1:9", clone_of(project, "alice"), "alice", runs=1, patience_s=1)
    (project / "train.py").write_text("# not finished")
    busy = await start(web, project, "bob", runs=1)

    assert "has uncommitted changes" in await busy.errors()
    assert (project / "train.py").read_text() == "# not finished"
    assert "gave up after 1 s" in (errors := await gone.errors())
    assert errors.count("\n") == 1
    assert [await agent.child.wait() for agent in (busy, gone)] == [1, 1]


@pytest.mark.parametrize("status", [429, 503])
def test_a_lost_answer_is_asked_for_again_under_the_same_key_and_a_busy_lab_is_left_at_once(
    status: int,
) -> None:
    from agent import LabApi, Unreachable  # pyright: ignore[reportMissingImports]  # the examples are on the path

    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["idempotency-key"])
        if len(asked) == 1:
            raise httpx.ReadError("the connection was cut")
        if len(asked) == 2:
            return httpx.Response(200, json={"experiment_id": "night-2"})
        return httpx.Response(status, json={"detail": "enough for today"}, headers={"Retry-After": "7200"})

    with httpx.Client(base_url="http://lab", transport=httpx.MockTransport(answer)) as http:
        lab = LabApi(http, lambda *_, **__: None, 120.0)

        assert lab.post("/api/experiment/submit", {}, "k") == {"experiment_id": "night-2"}
        with pytest.raises(Unreachable, match="enough for today; it asks to be left alone for 7200 s"):
            lab.post("/api/experiment/submit", {}, "l")

    assert asked == ["k", "k", "l"]
