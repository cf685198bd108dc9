"""Process supervision, with tiny real children."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import functions.kernel.process.supervision
import state.child_heartbeat
from functions.kernel.process.supervision import ProcessGroup, ProcessSpec, RestartBackoff
from state.child_heartbeat import LOOKS, ChildHeartbeat, HeartbeatListener

pytestmark = pytest.mark.process

QUICK = RestartBackoff(first_s=0.02, most_s=0.1, forgiven_after_s=30.0)
SLEEP = "import time; print('up', flush=True); time.sleep(60)"
IGNORE_TERM = f"import signal; signal.signal(15, signal.SIG_IGN); {SLEEP}"
SLOW_END = """
import signal, sys, time
def end(*_):
    time.sleep(0.3); print("ended", flush=True); sys.exit(0)
signal.signal(15, end)
print("up\\n", end="", flush=True)  # in one write, which a signal does not split
time.sleep(60)
"""
WITH_CHILD = f"""
import signal, subprocess, sys, time
signal.signal(15, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", {IGNORE_TERM!r}])
print("child", child.pid, flush=True)
time.sleep(60)
"""
BEATING = f"""
import asyncio, os, signal, subprocess, sys, time
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from state.child_heartbeat import ChildHeartbeat

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stop.set)
    pulse = ChildHeartbeat.inherited()
    beating = asyncio.create_task(pulse.from_loop())
    await asyncio.sleep(0)
    print("up", flush=True)
    HOOK
    await stop.wait()
    await asyncio.sleep(DRAIN_S)
    print("ended", flush=True)

asyncio.run(main())
"""
SILENT_S = 2.0


def spec(name: str, code: str = SLEEP, drain_s: float = 10.0, silent_s: float | None = None) -> ProcessSpec:
    return ProcessSpec(name, (sys.executable, "-c", code), None, drain_s, silent_s)


def beating(hook: str = "pass", drain_s: float = 0.0) -> ProcessSpec:
    """A child that beats from its event loop, and does something once it is up."""
    code = BEATING.replace("HOOK", hook).replace("DRAIN_S", repr(drain_s))
    return spec("web", code, drain_s=60.0, silent_s=SILENT_S)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def eventually(what: Callable[[], bool], within_s: float = 15.0) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.01)


class Lab:
    def __init__(self, specs: Sequence[ProcessSpec], log_dir: Path, backoff: RestartBackoff) -> None:
        self.said: list[str] = []
        self.log_dir = log_dir
        self.group = ProcessGroup(specs, log_dir, self.said.append, backoff)

    def log(self, name: str) -> str:
        path = self.log_dir / f"{name}.log"
        return path.read_text() if path.exists() else ""


@asynccontextmanager
async def running(
    tmp_path: Path, *specs: ProcessSpec, backoff: RestartBackoff = QUICK, say: str = "up"
) -> AsyncIterator[Lab]:
    """A started group whose children have all said that they are up; nothing of it is left behind."""
    lab = Lab(specs, tmp_path / "logs", backoff)
    try:
        await lab.group.start()
        await eventually(lambda: all(say in lab.log(spec.name) for spec in specs))
        yield lab
    finally:
        lab.group.force()
        await lab.group.drain()


async def test_a_child_that_was_killed_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path, spec("web"), spec("clock")) as lab:
        first = lab.group.pids
        os.kill(first["web"], signal.SIGKILL)
        await eventually(lambda: lab.log("web").count("up") == 2)

        assert lab.group.pids["web"] != first["web"]
        assert lab.group.pids["clock"] == first["clock"]
        assert lab.said == [
            f"restarting web in 0.02 s: exit status -9 (log: {tmp_path / 'logs' / 'web.log'})"
        ]


@given(deaths=st.integers(1, 10_000))
def test_the_delay_grows_from_half_a_second_to_ten(deaths: int) -> None:
    backoff = RestartBackoff()
    assert 0.5 <= backoff.delay(deaths) <= backoff.delay(deaths + 1) <= 10.0
    assert [backoff.delay(n) for n in (1, 2, 3, 4, 5, 6)] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0]


async def test_a_drain_ends_the_last_first_and_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others_have_ended = tmp_path / "others"
    waits = f"import os\nwhile not os.path.exists({str(others_have_ended)!r}): time.sleep(0.01)"
    slow = SLOW_END.replace("time.sleep(0.3)", f"exec({waits!r})")
    async with running(tmp_path, spec("web"), spec("events"), spec("worker", slow)) as lab:
        pids = lab.group.pids
        asked: list[int] = []
        kill = os.kill

        def note(pid: int, number: int) -> None:
            asked.append(pid)
            kill(pid, number)

        monkeypatch.setattr(os, "kill", note)
        draining = asyncio.create_task(lab.group.drain())
        await eventually(lambda: "waiting for worker" in lab.said)
        others_have_ended.touch()
        await draining

        assert (asked, lab.group.pids) == ([pids["worker"], pids["events"], pids["web"]], {})
        assert not any(alive(pid) for pid in pids.values())
        assert lab.log("worker").split() == ["up", "ended"]
        assert lab.said[0].startswith("stopping; waiting for worker, events, web")


async def test_a_child_that_exceeds_its_time_to_drain_is_killed(tmp_path: Path) -> None:
    async with running(tmp_path, spec("worker", IGNORE_TERM, drain_s=0.2)) as lab:
        pid = lab.group.pids["worker"]
        await lab.group.drain()
        assert not alive(pid)
        assert lab.said[-1] == "worker took too long to end: killed"


async def test_force_kills_a_child_that_ignores_term_with_its_whole_process_group(tmp_path: Path) -> None:
    async with running(tmp_path, spec("worker", WITH_CHILD), say="child") as lab:
        grandchild = int(lab.log("worker").split("child ")[1].split()[0])
        pid = lab.group.pids["worker"]
        draining = asyncio.create_task(lab.group.drain())
        await asyncio.sleep(0.1)
        assert not draining.done()
        assert alive(pid)

        lab.group.force()
        await draining
        await eventually(lambda: not alive(grandchild))

        assert not alive(pid)


async def test_the_end_of_a_task_beside_the_children_ends_the_running(tmp_path: Path) -> None:
    async def dies() -> None:
        raise RuntimeError("it cannot go on")

    async with running(tmp_path, spec("web")) as lab:
        with pytest.raises(RuntimeError, match="it cannot go on"):
            await asyncio.wait_for(lab.group.run_until(asyncio.Event(), asyncio.create_task(dies())), 5)


async def test_a_large_log_is_put_aside_at_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions.kernel.process.supervision, "_KEEP_LOG_BYTES", 100)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "web.log").write_text("x" * 101)
    async with running(tmp_path, spec("web")) as lab:
        assert lab.log("web") == "up\n"
        assert (tmp_path / "logs" / "web.log.1").read_text() == "x" * 101


async def test_a_child_whose_event_loop_hangs_is_killed_with_its_process_group(tmp_path: Path) -> None:
    hangs = (
        "print('child', subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid, flush=True)"
        "; time.sleep(60)"
    )
    async with running(tmp_path, beating(hangs), spec("clock"), say="") as lab:
        await eventually(lambda: "child" in lab.log("web"))
        grandchild = int(lab.log("web").split("child ")[1].split()[0])
        first = lab.group.pids

        await eventually(lambda: lab.group.pids.get("web", first["web"]) != first["web"])

        assert not alive(first["web"])
        await eventually(lambda: not alive(grandchild))
        assert lab.group.pids["clock"] == first["clock"]
        assert [line.partition(" (")[0] for line in lab.said[:2]] == [
            "web gave no sign of life for 2 s: killed",
            "restarting web in 0.02 s: exit status -9",
        ]


async def test_a_child_may_start_late_but_not_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, spec("web", silent_s=0.1)) as lab:
        await asyncio.sleep(1.0)
        assert lab.said == []

    monkeypatch.setattr(state.child_heartbeat, "START_S", 1.0)
    async with running(tmp_path / "second", spec("web", silent_s=0.1)) as lab:
        await eventually(lambda: lab.said != [])
        assert lab.said[0] == "web gave no sign of life for 0.1 s: killed"


def test_silence_is_counted_in_looks_so_a_parent_that_slept_does_not_blame_its_children() -> None:
    listener = HeartbeatListener(silent_s=0.001)  # every look comes far too late
    pulse = child_of(listener)

    pulse.beat()
    first = listener.is_silent()
    time.sleep(0.1)
    then = [listener.is_silent() for _ in range(LOOKS)]
    pulse.beat()
    after_a_beat = listener.is_silent()
    at_last = [listener.is_silent() for _ in range(LOOKS + 1)]

    assert (first, any(then), after_a_beat) == (False, False, False)
    assert at_last == [False] * LOOKS + [True]
    listener.close()


def test_a_parent_that_does_not_look_never_holds_its_child_up_nor_does_one_that_died() -> None:
    listener = HeartbeatListener(silent_s=1.0)
    pulse = child_of(listener)

    for _ in range(100_000):
        pulse.beat()
    silent = listener.is_silent()
    listener.close()
    pulse.beat()

    assert not silent


def child_of(listener: HeartbeatListener) -> ChildHeartbeat:
    """The pulse of a child; it has its own copy of the pipe's end, as one that was forked."""
    return ChildHeartbeat(os.dup(listener.descriptor), listener.every_s)
