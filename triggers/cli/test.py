"""`nightjar test` runs the tests and the static checks of a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]

STATIC = {
    "basedpyright": ("basedpyright", "--level", "error"),
    "mypy": ("mypy",),
    "ruff": ("ruff", "check", "."),
    "ruff format": ("ruff", "format", "--check", "."),
    "import-linter": ("lint-imports",),
}
"""The slowest first, since they run side by side."""
SIDE_BY_SIDE = ("-n", "auto", "--dist", "loadfile")
"""How the whole suite is run: files that share a lab stay together."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--no-static", is_flag=True, help="skip ruff, mypy, basedpyright and import-linter")
@click.argument("pytest_arguments", nargs=-1)
def command(no_static: bool, pytest_arguments: tuple[str, ...]) -> int:
    """Run the static checks, then pytest: the whole suite on every core, or with PYTEST_ARGUMENTS as they say."""
    failed = []
    if not no_static:
        with ThreadPoolExecutor(os.cpu_count()) as together:
            failed = [
                name for name, passed in zip(STATIC, together.map(_passes, STATIC), strict=True) if not passed
            ]
    pytest = [sys.executable, "-m", "pytest", *(pytest_arguments or SIDE_BY_SIDE)]
    tests = subprocess.run(pytest, cwd=ROOT, check=False)
    if failed:
        click.echo(f"static checks that failed: {', '.join(failed)}", err=True)
    return 1 if failed else tests.returncode


def _passes(name: str) -> bool:
    began = time.monotonic()
    program, *arguments = STATIC[name]
    argv = [str(Path(sys.executable).with_name(program)), *arguments]
    done = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    passed = done.returncode == 0
    said = "" if passed else f"\n{done.stdout}{done.stderr}"
    click.echo(f"{name}: {'ok' if passed else 'FAILED'} ({time.monotonic() - began:.0f} s){said}", err=True)
    return passed
