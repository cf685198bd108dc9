"""The wheel: one package in site-packages, with everything that a lab needs; its demo runs from it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import zipfile
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx
import pytest

from state.program import VERSION
from tests.conftest import ROOT
from tests.journeys.running import LOOK_S
from triggers.cli.__main__ import COMMANDS
from triggers.ports import free_port

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
LEFT_BY_RUNS = ("weights.npz",)
OURS = ("functions", "state", "triggers", "workers")


class Installed:
    """An environment that has the wheel, and whose command line runs in an empty home."""

    def __init__(self, wheel: Path, venv: Path, home: Path) -> None:
        self.wheel, self.venv, self.home = wheel, venv, home
        self.python = venv / "bin" / "python"
        (self.packages,) = venv.glob("lib/python3.*/site-packages")

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "NIGHTJAR_REDIS_SERVER") if name in os.environ}
        return {**kept, "HOME": str(self.home)}

    def command(self, *words: str) -> list[str]:
        return [str(self.venv / "bin" / "nightjar"), *words]

    def nightjar(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            cwd=self.home,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build the wheel and install it as users do, except that its dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "home").mkdir()
    build = ("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder / "dist"), str(ROOT))
    subprocess.run([*PIP, *build], check=True)
    (wheel,) = (folder / "dist").iterdir()
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    made = Installed(wheel, venv, folder / "home")
    # Python reads no .pth file of a folder that a .pth file names: ours of the checkout stays out
    (made.packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    install = ("--python", str(made.python), "install", "--no-deps", "--no-index", str(wheel))
    subprocess.run([*PIP, *install], check=True)
    return made


def test_site_packages_get_one_package_with_every_file_and_no_script_sees_another(
    installed: Installed,
) -> None:
    places = [
        *ROOT.glob("program*.md"),
        *(p for top in (*OURS, "examples", "skills") for p in (ROOT / top).rglob("*")),
    ]
    ours = {
        f"nightjar/{place.relative_to(ROOT)}"
        for place in places
        if place.is_file() and "__pycache__" not in place.parts and place.name not in LEFT_BY_RUNS
    }
    packages = (*OURS, "bench", "installed", "tests", "examples")
    finds = f"import importlib.util; print([*filter(importlib.util.find_spec, {packages})])"

    with zipfile.ZipFile(installed.wheel) as wheel:
        found = set(wheel.namelist())
    done = subprocess.run(
        [installed.python, "-c", finds],
        cwd=installed.home,
        env=installed.environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert {name.partition("/")[0] for name in found} == {"nightjar", f"nightjar-{VERSION}.dist-info"}
    assert ours - found == set()
    assert done.stdout == "[]\n"


def test_the_commands_of_the_install_page_are_those_of_the_wheel(installed: Installed) -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    script = "\n".join(re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    assert f"dist/{installed.wheel.name}" in script
    for words in re.findall(r"^(?:uvx --from \S+ )?nightjar (.*?) *(?:#.*)?$", script, re.MULTILINE):
        assert installed.nightjar(*words.split(), "--help").returncode == 0, words


def test_the_installed_command_says_its_version_and_commands_beside_modules_of_somebody_else(
    installed: Installed,
) -> None:
    for name in OURS:
        (installed.home / f"{name}.py").write_text("raise SystemExit('not ours')\n")
    version = installed.nightjar("--version", PYTHONPATH=str(installed.home)).stdout
    said = installed.nightjar("--help", PYTHONPATH=str(installed.home)).stdout
    for name in OURS:
        (installed.home / f"{name}.py").unlink()
    assert version == f"nightjar {VERSION}\n"
    assert [name for name in COMMANDS if f"\n  {name} " not in said] == []


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_an_unsuitable_python_says_which_is_needed(installed: Installed, version: tuple[int, int]) -> None:
    start = (
        f"import runpy, sys; sys.version_info = {version}; runpy.run_module('nightjar', run_name='__main__')"
    )

    done = subprocess.run([installed.python, "-c", start], capture_output=True, text=True, check=False)

    said = ".".join(map(str, version))
    assert done.stderr.startswith(f"nightjar: it needs Python 3.11, 3.12 or 3.13; this one is {said} (")
    assert done.stderr.count("\n") == 1
    assert done.returncode == 1


def test_the_demo_trains_from_the_wheel_and_stays_up_until_ctrl_c(installed: Installed) -> None:
    data = installed.home.parent / "demo"
    with Terminal(
        installed.command(
            "demo", "--data", str(data), "--runs", "2", "--budget", "0.2", "--port", str(free_port(0))
        ),
        installed,
    ) as demo:
        while (stays := re.search(r"until Ctrl-C: (http://127.0.0.1:\d+)/#tag=demo1", demo.text)) is None:
            assert demo.goes_on(20 * LOOK_S), demo.text
        page = httpx.get(stays[1], timeout=60)
        demo.process.send_signal(signal.SIGINT)
        while demo.goes_on(1.0):
            pass

        text = demo.text
        assert demo.process.wait(60) == 0, text
    assert page.status_code == 200
    assert "3 experiments in" in text
    assert "measured by prepare.py" in " ".join(text.split())
    assert "nothing is left running" in text
    assert "# demo1: " in (data / "results" / "demo1" / "report.md").read_text()
    assert "./nightjar" not in text
    assert f"give it {installed.packages / 'nightjar' / 'program.md'}" in text


class Chat(BaseHTTPRequestHandler):
    """What a chat's webhook is to a lab: it takes JSON."""

    heard: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.heard.append(json.loads(body)["text"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def examples_of(page: str) -> dict[str, str]:
    """The files of a page by name, and its first block as hello.py."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL
    )
    named = {found[1]: block for block in blocks if (found := re.match(r"# (\w+\.py)\n", block))}
    return {"hello.py": blocks[0], **named}


def test_the_examples_of_your_own_functions_run_from_the_wheel_in_one_lab(installed: Installed) -> None:
    folder = installed.home / "mine"
    folder.mkdir()
    for name, text in examples_of("functions-of-your-own.md").items():
        (folder / name).write_text(text)
    data = ("--data", str(installed.home.parent / "own"))
    chat = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    threading.Thread(target=chat.serve_forever, daemon=True).start()
    port = free_port(0)
    command = installed.command("up", *data, "--port", str(port), "--functions", "mine", "--gpu", "none")

    def call(name: str, **fields: object) -> Any:
        answer = httpx.post(f"http://127.0.0.1:{port}/api/{name}", json=fields, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def command_call(name: str, /, **fields: str) -> Any:
        words = [word for field, value in fields.items() for word in (f"--{field}", value)]
        done = installed.nightjar("call", *data, name, *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    with Terminal(command, installed, CHAT_URL=f"http://127.0.0.1:{chat.server_port}/") as up:
        while "ready: " not in up.text:
            assert up.goes_on(20 * LOOK_S), up.text
        call("experiment/setup", tag="mar11", policy={"baseline_first": False, "keep_rule": "strict"})
        entered = {"hypothesis": "h", "category": "other", "diff_summary": "d", "commit_sha": "a" * 40}
        name = call("experiment/register", tag="mar11", **entered)["experiment_id"]
        call("experiment/complete", experiment_id=name, val_bpb=1.0)
        command_call("cron::run", function="nightly::summary")
        greeting = command_call("hello::greet", name="owl")
        kept = httpx.get(f"http://127.0.0.1:{port}/api/kept/mar11", timeout=60).json()
        policy = command_call(
            "search::set_policy", tag="mar11", policy=json.dumps({"sampler": "rules.Scatter"})
        )
        summary = installed.home / "summary.md"
        while not (Chat.heard and summary.exists() and summary.read_text()):
            assert up.goes_on(LOOK_S), up.text
        up.process.send_signal(signal.SIGINT)
        while up.goes_on(1.0):
            pass
        assert up.process.wait(60) == 0, up.text
    chat.shutdown()
    chat.server_close()

    assert (greeting, Chat.heard) == ({"text": "Hello, owl!"}, [f"New best of mar11: {name}"])
    assert "- mar11: 1.0" in summary.read_text()
    assert (kept, policy["policy"]["sampler"]) == ({"experiments": [name]}, "rules.Scatter")


class Terminal:
    """A process of the wheel that has a terminal, wide enough for every line."""

    def __init__(self, command: Sequence[str], installed: Installed, **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        self._shown = b""
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=installed.home,
            env=installed.environment | environment | {"TERM": "xterm", "COLUMNS": "1000"},
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def goes_on(self, seconds: float) -> bool:
        """Take what is shown for so long; False once it has ended."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self._ours], [], [], left)[0]:
                try:
                    self._shown += os.read(self._ours, 65536)
                except OSError:  # how a terminal tells its end
                    return False
        return True

    @property
    def text(self) -> str:
        """What was shown, without colors and moves."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._shown.decode(errors="replace"))
