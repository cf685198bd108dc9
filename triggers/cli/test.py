"""`nightjar test` runs the tests and the static checks of a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from state.errors import Unavailable
from state.program import IS_INSTALLED
from triggers.cli.output import note

ROOT = Path(__file__).parents[2]

STATIC = {
    "basedpyright": ("basedpyright", "--level", "error"),
    "mypy": ("mypy",),
    "ruff": ("ruff", "check", "."),
    "ruff format": ("ruff", "format", "--check", "."),
    "import-linter": ("lint-imports",),
}
"""The slowest first, since they run in parallel."""
SIDE_BY_SIDE = (
    *("-n", str((os.cpu_count() or 1) + 3), "--dist", "loadscope", "--no-loadscope-reorder"),
    *("--max-worker-restart", "3"),
)
"""Options for the whole suite. Three workers more than cores, because many tests wait for processes.

Each further one takes eight CPU seconds to collect the tests.

A test that takes too long ends its worker. After three such tests the run ends. See tests/conftest.py."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--no-static", is_flag=True, help="skip ruff, mypy, basedpyright and import-linter")
@click.option("--long", "with_long", is_flag=True, help="run the tests that take minutes, too")
@click.argument("pytest_arguments", nargs=-1)
def command(no_static: bool, with_long: bool, pytest_arguments: tuple[str, ...]) -> int:
    """Run pytest and the static checks in parallel.

    The whole suite uses all cores; with PYTEST_ARGUMENTS pytest uses only these.
    """
    if IS_INSTALLED:
        raise Unavailable("the tests are not in the wheel", hint="clone the repository, and run them there")
    pytest = [sys.executable, "-m", "pytest", *(("-m", "") if with_long else ())]
    with ThreadPoolExecutor(os.cpu_count()) as beside:
        checks = {} if no_static else {name: beside.submit(_passes, name) for name in STATIC}
        tests = subprocess.run([*pytest, *(pytest_arguments or SIDE_BY_SIDE)], cwd=ROOT, check=False)
        failed = [name for name, check in checks.items() if not check.result()]
    if failed:
        note(f"static checks that failed: {', '.join(failed)}")
    return 1 if failed else tests.returncode


def _passes(name: str) -> bool:
    began = time.monotonic()
    program, *arguments = STATIC[name]
    argv = [str(Path(sys.executable).with_name(program)), *arguments]
    done = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    passed = done.returncode == 0
    said = "" if passed else f"\n{done.stdout}{done.stderr}"
    note(f"{name}: {'ok' if passed else 'FAILED'} ({time.monotonic() - began:.0f} s){said}")
    return passed
