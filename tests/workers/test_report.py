"""report() in scripts of every kind: with a worker, without one, with a slow one and with one that died."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CHILD_PATH = Path(__file__).parents[2] / "workers" / "attempt" / "child_path"

pytestmark = pytest.mark.process


@dataclass
class Worker:
    """The worker's two ends of the pipes, and the environment of a script at the other ends."""

    reports: int
    answers: int
    env: dict[str, str]
    script_ends: tuple[int, int]

    def start(self, script: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            env=self.env,
            pass_fds=self.script_ends,
            stdout=subprocess.PIPE,
            text=True,
        )

    def reported(self) -> list[dict[str, float]]:
        """Everything that was sent, once no script has the pipe open any more."""
        for end in self.script_ends:
            os.close(end)
        self.script_ends = ()  # type: ignore[assignment]
        received = b""
        while data := os.read(self.reports, 65536):
            received += data
        return [json.loads(line) for line in received.splitlines()]


@pytest.fixture
def worker() -> Iterator[Worker]:
    reports, reports_end = os.pipe()
    answers_end, answers = os.pipe()
    env = {
        **os.environ,
        "PYTHONPATH": str(CHILD_PATH),
        "NIGHTJAR_REPORT_FD": str(reports_end),
        "NIGHTJAR_ANSWER_FD": str(answers_end),
        "NIGHTJAR_BUDGET_S": "300.0",
    }
    worker = Worker(reports, answers, env, (reports_end, answers_end))
    yield worker
    for fd in (*worker.script_ends, reports, answers):
        with contextlib.suppress(OSError):
            os.close(fd)


def output(script: subprocess.Popen[str]) -> str:
    with script:
        assert script.stdout is not None
        return script.stdout.read()


def test_without_a_worker_it_does_nothing(worker: Worker) -> None:
    del worker.env["NIGHTJAR_REPORT_FD"], worker.env["NIGHTJAR_ANSWER_FD"], worker.env["NIGHTJAR_BUDGET_S"]

    said = output(worker.start("import nightjar_report as n; n.report(1.0, 0.5); print(n.budget_s)"))

    assert said == "None\n"
    assert worker.reported() == []


def test_every_report_is_one_line_and_continue_lets_the_script_go_on(worker: Worker) -> None:
    os.write(worker.answers, b"continue\ncontinue\n")

    said = output(
        worker.start("from nightjar_report import report; report(1.5, 0.25); report(1, 1); print('on')")
    )

    assert said == "on\n"
    assert worker.reported() == [{"m": 1.5, "p": 0.25}, {"m": 1.0, "p": 1.0}]


@pytest.mark.parametrize("module", ["nightjar_report", "worker.report"])
def test_stop_ends_the_script_with_status_zero_and_its_output_flushed(worker: Worker, module: str) -> None:
    os.write(worker.answers, b"stop\n")

    script = worker.start(f"from {module} import report; print('kept'); report(1.5, 0.25); print('never')")

    assert output(script) == "kept\n"
    assert script.returncode == 0


def test_numbers_of_libraries_are_taken_and_what_is_no_finite_number_is_dropped(worker: Worker) -> None:
    os.write(worker.answers, b"continue\n" * 9)

    said = output(
        worker.start("""
            import numpy
            from nightjar_report import report
            class Hostile:
                def __float__(self):
                    raise RuntimeError("no")
            report(numpy.float32(0.5), numpy.array(0.25))
            for metric in (float("nan"), float("inf"), None, "x", Hostile(), 10**999, [1]):
                report(metric, 0.5)
                report(0.5, metric)
            print("alive")
        """)
    )

    assert said == "alive\n"
    assert worker.reported() == [{"m": 0.5, "p": 0.25}]


def test_a_worker_that_died_turns_reports_into_nothing(worker: Worker) -> None:
    os.close(worker.reports)
    os.close(worker.answers)

    said = output(
        worker.start("from nightjar_report import report; [report(1.0, 0.5) for _ in range(9)]; print('on')")
    )

    assert said == "on\n"


def test_a_worker_that_never_answers_delays_the_script_once_and_not_for_ever(worker: Worker) -> None:
    script = """
        import time
        from nightjar_report import report
        for _ in range(6_000):
            report(1.0, 0.5)
        print("on")
    """
    begin = time.monotonic()

    said = output(worker.start(script))

    assert said == "on\n"
    assert time.monotonic() - begin < 60  # a second each would take hours, and so would a full pipe


def test_a_late_stop_is_obeyed_at_the_next_report(worker: Worker) -> None:
    script = worker.start("""
        import sys, time
        from nightjar_report import report
        report(1.0, 0.5)
        print("on", flush=True)
        while True:
            report(1.0, 0.5)
            time.sleep(0.01)
    """)
    assert script.stdout is not None
    assert script.stdout.readline() == "on\n"

    os.write(worker.answers, b"stop\n")

    assert output(script) == ""
    assert script.returncode == 0


@pytest.mark.parametrize("how", ["fork", "exec", "exec-before-import"])
def test_only_the_process_that_imported_it_first_writes(worker: Worker, how: str) -> None:
    os.write(worker.answers, b"continue\n" * 9)
    child = "[sys.executable, '-c', 'from nightjar_report import report; report(9.0, 0.9)']"
    spawn = f"import subprocess, sys; subprocess.run({child}, check=True)"
    fork = "import os; pid = os.fork(); (report(9.0, 0.9), os._exit(0)) if pid == 0 else os.waitpid(pid, 0)"

    script = worker.start(
        "\n".join(
            [
                spawn if how == "exec-before-import" else "",
                "from nightjar_report import report",
                "report(1.0, 0.5)",
                {"fork": fork, "exec": spawn}.get(how, ""),
                "report(2.0, 0.6)",
            ]
        )
    )
    output(script)

    assert script.returncode == 0
    assert worker.reported() == [{"m": 1.0, "p": 0.5}, {"m": 2.0, "p": 0.6}]


def test_a_descriptor_that_means_something_else_is_not_written_to(worker: Worker, tmp_path: Path) -> None:
    worker.env["NIGHTJAR_REPORT_FD"] += ":1"  # the inode of another pipe

    said = output(worker.start("from nightjar_report import report; report(1.0, 0.5); print('on')"))

    assert said == "on\n"
    assert worker.reported() == []
