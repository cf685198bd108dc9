"""The scripted agent works through whole nights against the web application; only the training is a stand-in's."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
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


def changes_crash(constants: Mapping[str, object]) -> float:
    if constants != BASELINE:
        raise RuntimeError("CUDA out of memory")
    return 3.0


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


async def start(
    url: str, clone: Path, name: str, *more: str, runs: int, seed: int = 1, tag: str = "night"
) -> Running:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-W", "error", str(EXAMPLES / "agent.py")),
        *("--url", url, "--tag", tag, "--repo", str(clone), "--name", name),
        *("--runs", str(runs), "--seed", str(seed), "--patience", "90", "--json", *more),
        env=git_env(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    return Running(child)


async def work(url: str, clone: Path, name: str, *more: str, **how: Any) -> list[Json]:
    return await (await start(url, clone, name, *more, **how)).end()


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


# -- one agent


async def test_a_night_of_keeps_stands_on_the_last_commit_and_tells_what_was_tried(
    web: str, process: Process, project: Path
) -> None:
    clone, base = clone_of(project, "alice"), git(project, "rev-parse", "HEAD")

    async with standing_in(process, web, project, every_run_is_better()) as worker:
        lines = await work(web, clone, "alice", runs=3)

    baseline, *found = await experiments(web)
    assert [e["status"] for e in (baseline, *found)] == ["keep"] * 4
    assert [e["parent_ids"] for e in (baseline, *found)] == [[], ["night-1"], ["night-2"], ["night-3"]]
    assert (baseline["commit_sha"], baseline["diff"], baseline["description"]) == (base, "", "baseline")
    assert (baseline["agent"], baseline["config_delta"]) == ("nightjar", None)
    assert [e["agent"] for e in found] == ["alice"] * 3
    assert git(clone, "branch", "--show-current") == "autoresearch/night-alice"
    assert git(clone, "rev-parse", "HEAD") == found[-1]["commit_sha"]
    assert git(clone, "rev-list", "--count", f"{base}..HEAD") == "3"
    assert git(clone, "show", "HEAD:train.py") == worker.scripts["night-4"].strip()
    assert [line["action"] for line in said(lines, "finished")] == ["keep_commit"] * 3
    for e in found:
        tried = read_constants(build(clone_of(project, e["id"]), base, e["diff"].encode()))
        assert e["config_delta"] == {n: v for n, v in tried.items() if v != BASELINE[n]}


async def test_what_crashed_is_reset(web: str, process: Process, project: Path) -> None:
    clone, base = clone_of(project, "alice"), git(project, "rev-parse", "HEAD")

    async with standing_in(process, web, project, changes_crash):
        lines = await work(web, clone, "alice", runs=2)

    found = await experiments(web)
    assert [e["status"] for e in found] == ["keep", "crash", "crash"]
    assert [e["parent_ids"] for e in found] == [[], ["night-1"], ["night-1"]]
    assert len({e["diff"] for e in found}) == 3
    assert git(clone, "rev-parse", "HEAD") == base
    assert git(clone, "status", "--porcelain") == ""
    assert said(lines, "done")


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

    found = await experiments(web)
    assert [line["experiment_id"] for line in said(again, "resumed")] == ["night-2"]
    assert [line["experiment_id"] for line in said(again, "finished")] == ["night-2", "night-3"]
    assert [e["parent_ids"] for e in found] == [[], ["night-1"], ["night-2"]]


async def test_uncommitted_work_of_somebody_is_left_alone(web: str, project: Path) -> None:
    (project / "train.py").write_text("# not finished")

    agent = await start(web, project, "alice", runs=1)

    assert "has uncommitted changes" in await agent.errors()
    assert await agent.child.wait() == 1
    assert (project / "train.py").read_text() == "# not finished"


async def test_a_discard_goes_back_to_another_agents_best(web: str, process: Process, project: Path) -> None:
    async with standing_in(process, web, project, every_run_is_better()) as worker:
        await work(web, clone_of(project, "alice"), "alice", runs=1)
    async with standing_in(process, web, project, no_change_helps):
        await work(web, clone_of(project, "bob"), "bob", runs=2)

    _, alices, *bobs = await experiments(web)
    assert [e["status"] for e in bobs] == ["discard", "discard"]
    assert [e["parent_ids"] for e in bobs] == [[alices["id"]]] * 2
    assert git(project.parent / "bob", "show", "HEAD:train.py") == worker.scripts[alices["id"]].strip()
    assert git(project.parent / "bob", "status", "--porcelain") == ""


# -- several agents


async def test_agents_that_start_together_begin_with_ideas_behind_one_baseline(
    web: str, process: Process, project: Path
) -> None:
    names = ["alice", "bob", "carol"]

    async with standing_in(process, web, project, every_run_is_better()):
        await asyncio.gather(*(work(web, clone_of(project, name), name, runs=2) for name in names))

    found = await experiments(web)
    base = git(project, "rev-parse", "HEAD")
    assert len(found) == 7
    assert [(e["description"], e["agent"]) for e in found if e["commit_sha"] == base] == [
        ("baseline", "nightjar")
    ]
    assert found[0]["description"] == "baseline"
    assert {e["agent"] for e in found[1:]} == set(names)


# -- a bad line


@asynccontextmanager
async def bad_line(url: str, spoil: bytes) -> AsyncIterator[str]:
    """A way to the lab that is cut after the first request with these bytes was done: its answer is lost."""
    upstream, spoiled = httpx.URL(url), False

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal spoiled
        far_reader, far_writer = await asyncio.open_connection(upstream.host, upstream.port)
        answer_is_lost = asyncio.Event()
        back = asyncio.create_task(carry_back(far_reader, writer, answer_is_lost))
        try:
            while chunk := await reader.read(1 << 16):
                if spoil in chunk and not spoiled:
                    spoiled = True
                    answer_is_lost.set()
                far_writer.write(chunk)
        finally:
            far_writer.close()
            await back
            writer.close()

    async def carry_back(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer_is_lost: asyncio.Event
    ) -> None:
        while chunk := await reader.read(1 << 16):
            if answer_is_lost.is_set():
                writer.close()
                return
            writer.write(chunk)

    async with await asyncio.start_server(carry, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
    assert spoiled


async def test_a_submission_that_is_repeated_is_one_experiment(
    web: str, process: Process, project: Path
) -> None:
    clone = clone_of(project, "alice")

    async with (
        standing_in(process, web, project, every_run_is_better()),
        bad_line(web, b"POST /api/experiment/submit") as url,
    ):
        lines = await work(url, clone, "alice", runs=2)

    assert [line["experiment_id"] for line in said(lines, "submitted")] == ["night-2", "night-3"]
    assert [e["id"] for e in await experiments(web)] == ["night-1", "night-2", "night-3"]
    assert said(lines, "retry")


async def test_an_agent_gives_up_a_lab_that_is_gone_with_a_word_and_no_traceback(project: Path) -> None:
    began = time.monotonic()
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / "agent.py"), "--url", "http://127.0.0.1:9", "--tag", "night"),
        *("--repo", str(project), "--name", "alice", "--runs", "1", "--patience", "2"),
        env=git_env(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await child.communicate()

    assert child.returncode == 1
    assert b"asking again" in printed
    assert b"gave up" in errors
    assert b"Traceback" not in errors
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("status", [429, 503])
def test_a_lab_that_asks_to_be_left_alone_for_hours_is_left_at_once(status: int) -> None:
    from agent import LabApi, Unreachable  # pyright: ignore[reportMissingImports]  # the examples are on the path

    asked: list[httpx.Request] = []

    def busy(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status, json={"detail": "enough for today"}, headers={"Retry-After": "7200"})

    begin = time.monotonic()
    with httpx.Client(base_url="http://lab", transport=httpx.MockTransport(busy)) as http:
        lab = LabApi(http, lambda *_, **__: None, 120.0)

        with pytest.raises(Unreachable, match="enough for today; it asks to be left alone for 7200 s"):
            lab.post("/api/experiment/submit", {})

    assert len(asked) == 1
    assert time.monotonic() - begin < 60
