"""The launcher's decisions; the environment itself is made by every CI run."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
import venv as venvs
from importlib.machinery import SourceFileLoader
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from workers.attempt.processes import ATTEMPT

CHECKOUT = Path(__file__).parents[1]


def load() -> ModuleType:
    loader = SourceFileLoader("launcher", str(CHECKOUT / "nightjar"))
    spec = importlib.util.spec_from_loader("launcher", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["launcher"] = module  # a NamedTuple looks its module up
    loader.exec_module(module)
    return module


launcher = load()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a finished environment of no content."""
    (tmp_path / "requirements.txt").write_text("few\n")
    (tmp_path / "requirements-dev.txt").write_text("few\nmany\n")
    (tmp_path / "nightjar").write_bytes((CHECKOUT / "nightjar").read_bytes())
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    return tmp_path


def stamp(checkout: Path, requirements: str) -> None:
    venv = checkout / ".venv"
    (venv / "nightjar-stamp").write_text(launcher.stamp_of(launcher.digest(checkout / requirements), venv))


def current(checkout: Path, dev: bool) -> bool:
    return bool(launcher.is_current(checkout / ".venv", launcher.wanted(checkout, dev)))


@pytest.mark.parametrize(
    ("made_from", "serves"),
    [(None, (False, False)), ("requirements.txt", (True, False)), ("requirements-dev.txt", (True, True))],
)
def test_an_environment_serves_the_requirements_it_was_made_from(
    checkout: Path, made_from: str | None, serves: tuple[bool, bool]
) -> None:
    assert [launcher.needs_dev(argv) for argv in ([], ["demo", "test"], ["test", "-k", "x"])] == [
        False,
        False,
        True,
    ]
    if made_from:
        stamp(checkout, made_from)
    assert (current(checkout, dev=False), current(checkout, dev=True)) == serves
    for name in ("requirements.txt", "requirements-dev.txt"):
        (checkout / name).write_text("others\n")
    assert not current(checkout, dev=False)


def test_a_python_that_went_away_or_became_another_asks_for_a_new_environment(checkout: Path) -> None:
    stamp(checkout, "requirements.txt")
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(checkout / "gone")
    assert not current(checkout, dev=False)

    python.unlink()
    python.symlink_to("/bin/sh")
    assert not current(checkout, dev=False)


def test_a_current_environment_is_used_as_it_is(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(launcher, "build", refuse)
    stamp(checkout, "requirements.txt")

    python = launcher.ensure_environment(checkout, False)

    assert python == checkout / ".venv" / "bin" / "python"
    (pth,) = (checkout / ".venv").glob("lib/python3.*/site-packages/*")
    assert pth.name == "nightjar.pth"
    assert f"sys.path.append({str(checkout)!a})" in pth.read_text()


@pytest.mark.parametrize("place", ["checkout", "a 'checkout' of ünïcode"])
def test_a_script_of_a_run_does_not_see_the_packages_of_the_checkout(tmp_path: Path, place: str) -> None:
    checkout, venv = tmp_path / place, tmp_path / "venv"
    checkout.mkdir()
    for name in ("state", "functions", "triggers", "workers", "bench"):
        (checkout / f"{name}.py").write_text(f"print('ours: {name}')\n")
    venvs.create(venv, symlinks=True)
    launcher.point_at(checkout, venv)

    def imported(name: str, **environment: str) -> str:
        words = [str(venv / "bin" / "python"), "-c", f"import {name}"]
        done = subprocess.run(
            words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    assert imported("state") == "ours: state\n"
    for name in ("state", "functions", "triggers", "workers", "bench"):
        assert f"No module named '{name}'" in imported(name, **{ATTEMPT: "lab/slot/mar11-1/1/1"})


def test_neither_an_interpreter_inside_the_environment_nor_a_placeholder_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\necho 'not installed' >&2\nexit 127\n")
    shim.chmod(0o755)
    assert launcher.probe(str(shim)) is None
    assert launcher.probe(str(tmp_path / "missing")) is None

    inside = launcher.Python(str(CHECKOUT / ".venv" / "bin" / "python3"), sys.version_info[:2], True)
    monkeypatch.setattr(launcher, "probe", lambda _: inside)
    python, _ = launcher.find_python(CHECKOUT / ".venv")
    assert python is None


@pytest.mark.parametrize(
    ("version", "has_pip", "words"),
    [
        ((3, 9), True, ("needs Python 3.11, 3.12 or 3.13", "uv")),
        ((3, 12), False, ("apt install python3-venv, or python3.12-venv",)),
    ],
)
def test_where_no_python_suits_the_message_says_what_is_needed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: tuple[int, int],
    has_pip: bool,
    words: tuple[str],
) -> None:
    monkeypatch.setattr(launcher, "probe", lambda _: launcher.Python("/usr/bin/python3.12", version, has_pip))
    python, problem = launcher.find_python(tmp_path)
    assert (python is None) == has_pip
    assert [word for word in words if word not in problem] == []


def test_pips_settings_reach_uv_those_of_its_own_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured = tmp_path / "pip.conf"
    configured.write_text(
        "[global]\nfind-links = /b /c\nindex-url = https://all.example/simple\ncert = /all.pem\nproxy = http://all.example\n"
        "[install]\nindex-url = https://some.example/simple\ncert = /some.pem\n"
        "extra-index-url =\n  https://one.example\n  https://two.example\n"
        "[download]\nindex-url = https://other.example/simple\n"
    )
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configured))
    monkeypatch.setenv("PIP_CERT", "/own.pem")

    told = launcher.uv_environment({"UV_FIND_LINKS": "/uv"}, launcher.pip_settings(Path(sys.executable)))

    assert told["UV_FIND_LINKS"] == "/uv"  # uv has its own
    assert {name: told[name] for name in ("UV_INDEX_URL", "SSL_CERT_FILE", "ALL_PROXY")} == {
        "UV_INDEX_URL": "https://some.example/simple",
        "SSL_CERT_FILE": "/own.pem",
        "ALL_PROXY": "http://all.example",
    }
    assert told["UV_EXTRA_INDEX_URL"] == "https://one.example https://two.example"
    assert told["UV_INDEX_STRATEGY"] == "unsafe-best-match"  # any index may hold what is locked


class Setup(launcher.Setup):  # type: ignore[misc, name-defined]  # a module loaded from a file without a suffix
    """One whose steps are recorded: those of `failing` words fail."""

    def __init__(self, checkout: Path, failing: str = "nothing") -> None:
        self.ran: list[str] = []
        self.failing = failing
        super().__init__(
            checkout / ".venv", checkout / "requirements.txt", io.BytesIO(), launcher.Progress("")
        )

    def step(self, command: list[str], *_: object) -> bool:
        self.ran.append(" ".join(command).replace(str(self.venv.parent), "."))
        if self.ran[-1].endswith("-m venv ./.venv"):
            self.python.parent.mkdir()
            self.python.symlink_to(sys.executable)
        self.log.touch()
        return self.failing not in self.ran[-1]


@pytest.mark.parametrize("failing", [None, "requirements-setup.txt", "bin/uv --directory"])
def test_pip_fetches_what_installs_the_rest_or_installs_it_itself(
    checkout: Path, failing: str | None
) -> None:
    setup = Setup(checkout, failing or "nothing")

    setup.install(None, False)

    assert setup.ran[0].endswith("-I -m venv ./.venv")
    assert "-m pip install" in setup.ran[1]
    assert "./requirements-setup.txt" in setup.ran[1]
    assert all("--require-hashes" in line for line in setup.ran[1:])
    assert setup.ran[-1].endswith("-r ./requirements.txt")
    if failing is None:
        assert setup.ran[-1].startswith(
            "./.venv/bin/uv --directory . pip install"
        )  # not by a project's settings
    else:
        assert failing in setup.ran[-2]
        assert "-m pip install" in setup.ran[-1]


def test_development_tools_are_added_to_what_is_there(checkout: Path) -> None:
    stamp(checkout, "requirements.txt")
    (checkout / ".venv" / "bin" / "pip").touch()
    setup = Setup(checkout)
    setup.install(None, True)
    assert not any("venv ./.venv" in line for line in setup.ran)
    assert current(checkout, dev=False)


def test_a_broken_checkout_has_its_environment(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "triggers" / "cli").mkdir(parents=True)
    (checkout / "triggers" / "cli" / "__main__.py").write_text("<<<<<<< mine\n")
    monkeypatch.setattr(launcher.Setup, "install", lambda self, uv, extend: None)

    with (checkout / "requirements.txt").open("rb+") as lock:
        launcher.build(checkout, False, lock)

    assert current(checkout, dev=False)
    assert "SyntaxError" in (checkout / ".venv" / "nightjar-setup.log").read_text()


def test_a_failed_setup_shows_the_last_lines_and_leaves_no_stamp(checkout: Path) -> None:
    failing = [sys.executable, "-c", "print('first'); print('no such package'); raise SystemExit(1)"]
    with (checkout / "requirements.txt").open("rb+") as lock:
        setup = launcher.Setup(checkout / ".venv", checkout / "requirements.txt", lock, launcher.Progress(""))

        with pytest.raises(launcher.CannotSetUp) as refusal:
            setup.run(failing, os.environ)

    assert "no such package" in str(refusal.value)
    assert str(checkout / ".venv" / "nightjar-setup.log") in str(refusal.value)
    assert not current(checkout, dev=False)


def test_the_command_line_takes_over_with_all_of_its_context(checkout: Path, tmp_path: Path) -> None:
    stamp(checkout, "requirements.txt")
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    names = "${PYTHONPATH:-nothing} ${PYTHONDONTWRITEBYTECODE:-nothing}"
    python.write_text(f'#!/bin/sh\necho "$@ in $(pwd) with {names}"\nexit 3\n')
    python.chmod(0o755)
    stamp(checkout, "requirements.txt")
    (tmp_path / "elsewhere").mkdir()

    done = subprocess.run(
        [sys.executable, str(checkout / "nightjar"), "best", "--json"],
        cwd=tmp_path / "elsewhere",
        env={**os.environ, "PYTHONPATH": "/other", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == f"-P -m triggers.cli best --json in {tmp_path / 'elsewhere'} with nothing nothing\n"
    assert done.returncode == 3


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_what_a_package_asks_for_with_an_extra_is_locked_with_it(name: str) -> None:
    """Else pip looks at the newest release first, which has no hash here, and no environment can be made."""
    lines = (CHECKOUT / name).read_text().splitlines()
    pins = [Requirement(line.removesuffix("\\")) for line in lines if line[:1].isalnum()]
    locked = {pin.name: pin.extras for pin in pins}

    asked = [
        wanted
        for package in distributions()
        if package.name.lower().replace("_", "-") in locked
        for wanted in map(Requirement, package.requires or ())
        if wanted.extras and (wanted.marker is None or wanted.marker.evaluate({"extra": ""}))
    ]

    assert "pyjwt" in {wanted.name for wanted in asked}
    assert [wanted for wanted in asked if not wanted.extras <= locked[wanted.name.lower()]] == []
