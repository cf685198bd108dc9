"""Real child processes, well-behaved and hostile: each ends, and nothing of it stays alive."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from functions.kernel.lanes import Extension, Order
from tests.workers.watching import Orders
from workers.attempt.child import EndedCommand, RunCommand, RunTiming, run_command
from workers.attempt.processes import kill_all, processes_of

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
CHILD_PATH = ROOT / "workers" / "attempt" / "child_path"
QUICK = RunTiming(poll_s=0.02, tail_s=0.05, term_grace_s=0.5, lease_patience_s=0.3)
PATIENT = RunTiming(poll_s=0.02, tail_s=0.05, term_grace_s=60, lease_patience_s=60)


def command(tmp_path: Path, label: str, script: str, *, timeout_s: float = 60, **limits: int) -> RunCommand:
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    return RunCommand(
        argv=[sys.executable, "script.py"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CHILD_PATH), "PYTHONUNBUFFERED": "1"},
        label=label,
        log=tmp_path / "log.txt",
        timeout_s=timeout_s,
        limits=limits,
    )


def once_printed(tmp_path: Path, order: Order) -> Callable[[], Order]:
    """The order, as soon as the script has made a file `ready`: what it does before is over by then."""
    return lambda: order if (tmp_path / "ready").exists() else "continue"


def printed_by(code: str, *words: str, cwd: Path = ROOT) -> str:
    """The output of a new process that runs this code. Adopting orphans changes a whole process."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", code, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_a_script_that_ends_by_itself_leaves_its_output_and_exit_status(
    tmp_path: Path, label: str
) -> None:
    script = f"""
        import os, sys
        assert (sys.stdin.read(), os.getpgrp()) == ("", {os.getpgrp()})
        print("out")
        print("err", file=sys.stderr)
        sys.exit(3)
    """

    ended = await run_command(command(tmp_path, label, script), Orders(), QUICK)

    assert ended == EndedCommand("exit", 3, "out\nerr\n", is_empty=True)
    assert (tmp_path / "log.txt").read_text() == "out\nerr\n"


async def test_a_script_can_be_interrupted_though_its_worker_was_started_by_a_background_shell(
    tmp_path: Path, label: str
) -> None:
    script = """
        import signal
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
    """
    ours = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}

    try:
        ended = await run_command(command(tmp_path, label, script), Orders(), QUICK)
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)

    assert ended.log == "True\nTrue\n"


async def test_a_hanging_script_that_ignores_term_is_killed_at_its_deadline(
    tmp_path: Path, label: str
) -> None:
    script = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("ready", "w").close()
        time.sleep(600)
    """

    for timeout_s in (0.5, 4, 60):  # on a busy machine the shorter ones may end it before it ignores anything
        ended = await run_command(command(tmp_path, label, script, timeout_s=timeout_s), Orders(), QUICK)
        if (tmp_path / "ready").exists():
            break

    assert (ended.cause, ended.returncode, ended.is_empty) == ("timeout", -signal.SIGKILL, True)


DONE = "print('---\\nval_bpb: 0.91', flush=True); "


@pytest.mark.parametrize(
    ("script", "timeout_s", "cause"),
    [
        (f"{DONE}import threading; threading.Thread(target=time.sleep, args=(600,)).start()", 60, "hung"),
        (
            f"{DONE}import multiprocessing as m\n"
            "m.get_context('fork').Process(target=time.sleep, args=(600,)).start()",
            60,
            "hung",
        ),
        (
            f"{DONE}import threading; threading.Thread(target=lambda: all(True for _ in iter(int, 1))).start()",
            60,
            "hung",
        ),
        ("print('step 1', flush=True); time.sleep(600)", 2, "timeout"),
    ],
    ids=["thread", "child", "spinning", "no result yet"],
)
async def test_a_script_that_hangs_is_ended_once_it_has_printed_its_block(
    tmp_path: Path, label: str, script: str, timeout_s: float, cause: str
) -> None:
    asked = command(tmp_path, label, f"import time; {script}", timeout_s=timeout_s)

    ended = await run_command(
        replace(asked, metric="val_bpb"), Orders(), replace(QUICK, silence_s=0.5, count_s=0.02)
    )

    assert (ended.cause, ended.is_empty) == (cause, True)
    assert ended.printed.metrics == ({"val_bpb": 0.91} if cause == "hung" else {})


TIDIES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("tidied"), sys.exit(0)))
open("ready", "w").close()
time.sleep(600)
"""


async def test_a_script_may_tidy_up_when_it_is_told_to_end(tmp_path: Path, label: str) -> None:
    ended = await run_command(
        command(tmp_path, label, TIDIES), Orders(on_poll=once_printed(tmp_path, "stop")), PATIENT
    )

    assert (ended.cause, ended.returncode, ended.log) == ("stop", 0, "tidied\n")


@pytest.mark.parametrize(
    "escape",
    ["os.setsid(); os.fork() and os._exit(0)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"],
    ids=["daemon", "ignores-term"],
)
async def test_no_grandchild_outlives_the_script(tmp_path: Path, label: str, escape: str) -> None:
    script = f"""
        import os, signal, time
        if os.fork() == 0:
            {escape}
            open("pid", "w").write(str(os.getpid()))
            os.rename("pid", "ready")
            time.sleep(600)
            os._exit(0)
        while not os.path.exists("ready"):
            time.sleep(0.01)
        print("done")
    """

    ended = await run_command(command(tmp_path, label, script), Orders(), QUICK)

    assert (ended.cause, ended.returncode, ended.log, ended.is_empty) == ("exit", 0, "done\n", True)
    assert not _lives(int((tmp_path / "ready").read_text()))


MEASURED = """
import asyncio, os, sys
from pathlib import Path
from functions.kernel.lanes import Order
from workers.attempt.child import RunCommand, RunTiming, run_command
from functions.kernel.process.ending import adopt_orphans
from tests.workers.watching import Orders

adopt_orphans()
here = Path(sys.argv[2])
argv = [sys.executable, str(here / "script.py")]
command = RunCommand(argv, here, dict(os.environ), sys.argv[1], here / "log.txt", 600, spare=())
ended = asyncio.run(run_command(command, Orders(), RunTiming(count_s=0.02)))
assert (ended.cause, ended.returncode, ended.is_empty) == ("exit", 0, True), ended
print(ended.time.wall_seconds, ended.time.cpu_seconds)
"""
BURNING = """
import os, signal, time

def burn():
    while time.process_time() < 0.3:
        pass

def within(child):
    if not (pid := os.fork()):
        child()
        os._exit(0)
    return pid
"""


IN_ALL = """
burn()
os.waitpid(within(burn), 0)
# it loses its parents, its session and its environment; its end is seen by its pipe
r, w = os.pipe()
os.waitpid(within(lambda: within(lambda: (os.setsid(), burn()))), 0)
os.close(w)
os.read(r, 1)
# it is still there when the script ends
r, w = os.pipe()
within(lambda: (burn(), os.write(w, b"1"), signal.pause()))
os.read(r, 1)
"""
"""Four processes burn 0.3 s each."""


def test_the_cpu_seconds_of_all_processes_of_a_run_are_measured(tmp_path: Path, label: str) -> None:
    (tmp_path / "script.py").write_text(BURNING + IN_ALL)
    wall_s, cpu_s = map(float, printed_by(MEASURED, label, str(tmp_path)).split())
    assert cpu_s >= 1.1
    assert wall_s > 0


UNAWAITED = (
    BURNING
    + """
from workers.attempt.usage import CpuSeconds

cpu = CpuSeconds()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel adds up nothing of its children then
r, w = os.pipe()
child = within(lambda: (burn(), os.write(w, b"1"), signal.pause()))
os.read(r, 1)
cpu.look([child])
os.kill(child, signal.SIGKILL)
os.close(w)
os.read(r, 1)
print(cpu.total >= 0.25)
"""
)


def test_a_process_that_nobody_waits_for_counts_as_it_was_seen_last() -> None:
    assert printed_by(UNAWAITED) == "True\n"


REFORKING = """
import importlib.util, os, subprocess, sys, time
from pathlib import Path
from workers.attempt import processes
from functions.kernel.process.ending import adopt_orphans

def of_worker():
    assert processes.kill_all(sys.argv[2], spare=[])

def of_evaluator():
    place = Path(processes.__file__).with_name("scoring_path") / "score.py"
    spec = importlib.util.spec_from_file_location("score", place)
    score = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(score)
    assert score.end_children(spare=[])

CHAIN = '''
import ctypes, os, sys, time
fork, end = ctypes.PyDLL(None).fork, ctypes.CDLL(None)._exit
counted = os.open(sys.argv[1], os.O_WRONLY)
for _ in range(9000):
    if fork():
        end(0)
    os.pwrite(counted, b"%d" % (time.monotonic() * 1000), 0)
'''
open("counted", "w").close()
adopt_orphans()
chain = [sys.executable, "-I", "-S", "-c", CHAIN, "counted"]
subprocess.run(chain, env={}, check=True)
while not os.path.getsize("counted"):
    time.sleep(0.001)
{"worker": of_worker, "evaluator": of_evaluator}[sys.argv[1]]()
stood = open("counted").read()
time.sleep(0.3)
print(open("counted").read() == stood)
"""


@pytest.mark.parametrize("whose", ["worker", "evaluator"])
def test_what_forks_and_ends_all_the_time_does_not_outrun_its_end(
    tmp_path: Path, label: str, whose: str
) -> None:
    assert printed_by(REFORKING, whose, label, cwd=tmp_path) == "True\n"


async def test_a_flood_of_output_keeps_its_beginning_and_its_end(tmp_path: Path, label: str) -> None:
    script = """
        import sys
        print("begin")
        for _ in range(400):
            sys.stdout.write("x" * 65536)
        print("\\n---\\nval_bpb: 1.5")
    """

    ended = await run_command(command(tmp_path, label, script), Orders(), QUICK)

    assert ended.log.startswith("begin\n")
    assert ended.log.endswith("---\nval_bpb: 1.5\n")
    assert "bytes left out]" in ended.log
    assert (tmp_path / "log.txt").stat().st_size < 9 * 1024 * 1024


async def test_reports_reach_the_watcher_and_a_stop_lets_the_script_end_by_itself(
    tmp_path: Path, label: str
) -> None:
    script = """
        from nightjar_report import report
        for step in range(1000):
            report(2.0 - step, step / 1000)
        print("never")
    """
    watcher = Orders(on_tick=lambda metric, progress: "stop" if progress >= 0.002 else "continue")

    ended = await run_command(command(tmp_path, label, script), watcher, PATIENT)

    assert watcher.ticks == [(2.0, 0.0), (1.0, 0.001), (0.0, 0.002)]
    assert (ended.cause, ended.returncode, ended.log) == ("stop", 0, "")


async def test_a_script_told_to_stop_may_still_finish_even_while_poll_says_stop_too(
    tmp_path: Path, label: str
) -> None:
    script = """
        import time
        from nightjar_report import report
        try:
            report(1.0, 0.5)
        except SystemExit:
            time.sleep(0.3)
            try:
                report(0.9, 0.6)
            except SystemExit:
                print("told twice")
    """
    watcher = Orders(
        on_tick=lambda metric, progress: "stop", on_poll=lambda: "stop" if watcher.ticks else "continue"
    )

    ended = await run_command(command(tmp_path, label, script), watcher, PATIENT)

    assert (ended.cause, ended.returncode, ended.log) == ("stop", 0, "told twice\n")


async def test_a_script_that_takes_no_notice_of_stop_is_ended_after_the_grace(
    tmp_path: Path, label: str
) -> None:
    script = """
        import time
        from nightjar_report import report
        while True:
            try:
                report(1.0, 0.5)
            except SystemExit:
                time.sleep(0.01)
    """

    ended = await run_command(command(tmp_path, label, script), Orders(on_tick=lambda *_: "stop"), QUICK)

    assert (ended.cause, ended.returncode) == ("stop", -signal.SIGTERM)


async def test_a_script_whose_run_is_extended_learns_of_it_and_outlives_its_first_time_limit(
    tmp_path: Path, label: str
) -> None:
    script = """
        import time
        import nightjar_report
        nightjar_report.report(1.0, 0.8)
        print(nightjar_report.budget_s)
        time.sleep(6)
        nightjar_report.report(0.9, 1.2)
        print("at the end")
    """
    more = Extension(extra_s=60, budget_s=360.5)
    watcher = Orders(on_tick=lambda metric, progress: more if progress == 0.8 else "continue")

    ended = await run_command(command(tmp_path, label, script, timeout_s=6), watcher, QUICK)

    assert (ended.cause, ended.returncode, ended.log) == ("exit", 0, "360.5\nat the end\n")


async def test_an_extended_run_ends_at_its_new_time_limit(tmp_path: Path, label: str) -> None:
    script = """
        import time
        from nightjar_report import report
        while True:
            report(1.0, 0.8)
            time.sleep(0.05)
    """
    asked = command(tmp_path, label, script, timeout_s=2)

    ended = await run_command(asked, Orders(on_tick=lambda *_: Extension(extra_s=0.5, budget_s=360)), QUICK)

    assert ended.cause == "timeout"


PRINTS = """
    import os, time
    def step(percent):
        line = f"\\rstep {percent:05d} ({percent:.1f}%) | loss: {9 - percent / 100:.6f} | lrm: 1.00 | dt: 300ms    "
        print(line, end="", flush=True)
    def wait_for(name):
        while not os.path.exists(name):
            time.sleep(0.01)
"""
"""The beginning of a script that knows nothing of report, and prints as autoresearch's does."""


def unmodified(tmp_path: Path, label: str, script: str, *, timeout_s: float = 60) -> RunCommand:
    """A script whose ticks are the lines that it prints."""
    whole = textwrap.dedent(PRINTS) + textwrap.dedent(script)
    return replace(command(tmp_path, label, whole, timeout_s=timeout_s), tick_source="stdout")


async def test_what_an_unmodified_script_prints_reaches_the_watcher(tmp_path: Path, label: str) -> None:
    def tick(metric: float, progress: float) -> Order:
        if progress == 1.0:
            (tmp_path / "seen").touch()
        return "continue"

    script = """
        for percent in range(101):
            step(percent)
        wait_for("seen")
        print("\\n---\\nval_bpb: 1.5")
    """
    watcher = Orders(on_tick=tick)

    ended = await run_command(unmodified(tmp_path, label, script), watcher, QUICK)

    assert (ended.cause, ended.returncode) == ("exit", 0)
    assert ended.log.endswith("---\nval_bpb: 1.5\n")
    firsts = [(8.92, 0.08), (8.85, 0.15), (8.65, 0.35), (8.45, 0.55), (8.25, 0.75), (8.05, 0.95)]
    assert [told for told in watcher.ticks if told in firsts] == firsts
    assert watcher.ticks[-1] == (8.0, 1.0)


async def test_an_unmodified_script_is_ended_where_its_run_is_stopped(tmp_path: Path, label: str) -> None:
    script = """
        step(20)
        wait_for("never")
    """

    ended = await run_command(unmodified(tmp_path, label, script), Orders(on_tick=lambda *_: "stop"), PATIENT)

    assert (ended.cause, ended.returncode, ended.is_empty) == ("stop", -signal.SIGTERM, True)


async def test_nonsense_on_the_report_pipe_is_passed_over(tmp_path: Path, label: str) -> None:
    script = r"""
        import os
        fd = int(os.environ["NIGHTJAR_REPORT_FD"].split(":")[0])
        for line in (b"{", b"[1]", b'{"m": NaN, "p": 0}', b'{"m": [], "p": 0}', b"\xff", b"x" * 9000):
            os.write(fd, line + b"\n")
        os.write(fd, b'{"m": 1, "p": 0.5}\n')
    """
    watcher = Orders()

    ended = await run_command(command(tmp_path, label, script), watcher, QUICK)

    assert ended.returncode == 0
    assert watcher.ticks in ([(1.0, 0.5)], [])  # the script does not wait for an answer


async def test_a_watcher_that_fails_for_a_moment_changes_nothing(tmp_path: Path, label: str) -> None:
    fails = iter([True, True, True])

    def poll() -> Order:
        if next(fails, False):
            raise ConnectionError("Redis is away")
        (tmp_path / "back").touch()
        return "continue"

    def tick(metric: float, progress: float) -> Order:
        raise ConnectionError("Redis is away")

    script = """
        import os, time
        from nightjar_report import report
        report(1.0, 0.5)
        while not os.path.exists("back"):
            time.sleep(0.01)
        print("done")
    """

    ended = await run_command(command(tmp_path, label, script), Orders(on_poll=poll, on_tick=tick), PATIENT)

    assert (ended.cause, ended.returncode, ended.log) == ("exit", 0, "done\n")


@pytest.mark.parametrize("silence", ["raises", "hangs"])
async def test_a_lab_that_stays_silent_counts_as_a_lost_lease(
    tmp_path: Path, label: str, silence: str
) -> None:
    class Silent(Orders):
        async def poll(self) -> Order:
            if silence == "hangs":
                await asyncio.sleep(600)
            raise ConnectionError("Redis is away")

    ended = await run_command(command(tmp_path, label, "import time; time.sleep(600)"), Silent(), QUICK)

    assert (ended.cause, ended.is_empty) == ("lost", True)


async def test_a_run_ends_although_a_question_to_the_lab_swallows_its_cancellation(
    tmp_path: Path, label: str
) -> None:
    class Swallowing(Orders):
        """As `asyncio.wait_for` does before Python 3.12, where its answer comes at the same moment."""

        swallowed = False

        async def poll(self) -> Order:
            (tmp_path / "asked").touch()
            try:
                await asyncio.sleep(0 if self.swallowed else 600)
            except asyncio.CancelledError:
                self.swallowed = True
            return "continue"

    watcher = Swallowing()
    script = """
        import os, time
        while not os.path.exists("asked"):
            time.sleep(0.01)
    """

    ended = await run_command(command(tmp_path, label, script), watcher, PATIENT)

    assert (ended.cause, ended.is_empty, watcher.swallowed) == ("exit", True, True)


async def test_cancelling_the_run_kills_everything_of_it(tmp_path: Path, label: str) -> None:
    script = "import os, time; os.fork(); open('ready', 'w').close(); time.sleep(600)"
    running = asyncio.ensure_future(run_command(command(tmp_path, label, script), Orders(), PATIENT))
    await _until((tmp_path / "ready").exists)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert processes_of(label) == []


async def test_a_command_that_cannot_be_started_says_so_in_its_log(tmp_path: Path, label: str) -> None:
    nowhere = RunCommand(["/nowhere/python"], tmp_path, {}, label, tmp_path / "log.txt", timeout_s=60)

    ended = await run_command(nowhere, Orders(), QUICK)

    assert ended.returncode == 127
    assert ended.log == "nightjar: cannot start '/nowhere/python': No such file or directory\n"


async def test_limits_hold_for_the_script_and_its_children(tmp_path: Path, label: str) -> None:
    script = """
        import resource, subprocess, sys
        print(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        try:
            with open("big", "wb") as file:
                file.write(b"x" * 2_000_000)
        except OSError as error:
            print(error.errno)
    """

    ended = await run_command(
        command(tmp_path, label, script, core=0, fsize=1_000_000, nofile=128), Orders(), QUICK
    )

    assert ended.log == "(0, 0) 128\n27\n"
    assert (tmp_path / "big").stat().st_size <= 1_000_000


def test_killing_the_worker_with_minus_nine_kills_the_script(tmp_path: Path, label: str) -> None:
    (tmp_path / "worker.py").write_text(
        textwrap.dedent(f"""
        import asyncio, sys
        from pathlib import Path
        sys.path.insert(0, {str(ROOT)!r})
        from tests.workers.watching import Orders
        from workers.attempt.child import RunCommand, RunTiming, run_command
        here = Path({str(tmp_path)!r})
        code = "import os, time; open('a', 'w').write(str(os.getpid())); os.rename('a', 'ready'); "
        argv = [sys.executable, "-c", code + "time.sleep(600)"]
        command = RunCommand(argv, here, {{}}, {label!r}, here / "log.txt", timeout_s=600)
        asyncio.run(run_command(command, Orders(), RunTiming()))
        """)
    )
    with subprocess.Popen([sys.executable, "-P", str(tmp_path / "worker.py")]) as worker:
        while not (tmp_path / "ready").exists():
            assert worker.poll() is None
            time.sleep(0.02)
        script = int((tmp_path / "ready").read_text())

        worker.kill()
        worker.wait()

    for _ in range(1000):
        if not _lives(script):
            break
        time.sleep(0.01)
    assert not _lives(script)


def test_a_stamp_matches_whole_segments_only_and_spares_the_caller(
    label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = label.split("/")[0]
    monkeypatch.setenv("NIGHTJAR_ATTEMPT", f"{experiment}/12/1")
    with subprocess.Popen(["sleep", "600"], env={**os.environ}) as sleeper:
        try:
            while not (found := processes_of(f"{experiment}/12/")):
                time.sleep(0.01)  # in the middle of its exec it has no environment
            assert [p.pid for p in found] == [sleeper.pid]
            assert processes_of(f"{experiment}/1") == []

            assert kill_all(f"{experiment}/12")
        finally:
            sleeper.kill()
        assert sleeper.wait() == -signal.SIGKILL


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def _until(fact: Callable[[], bool]) -> None:
    while not fact():  # noqa: ASYNC110 - the fact is another process's
        await asyncio.sleep(0.01)
