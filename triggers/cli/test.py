"""`nightjar test` runs the tests and the static checks of a checkout."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]

STATIC = (
    ("ruff", ("ruff", "check", ".")),
    ("ruff format", ("ruff", "format", "--check", ".")),
    ("mypy", ("mypy",)),
    ("basedpyright", ("basedpyright", "--level", "error")),
    ("import-linter", ("lint-imports",)),
)


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--no-static", is_flag=True, help="skip ruff, mypy, basedpyright and import-linter")
@click.argument("pytest_arguments", nargs=-1)
def command(no_static: bool, pytest_arguments: tuple[str, ...]) -> int:
    """Run the static checks, then pytest (with PYTEST_ARGUMENTS)."""
    failed = [] if no_static else [name for name, argv in STATIC if not _passes(name, argv)]
    tests = subprocess.run([sys.executable, "-m", "pytest", *pytest_arguments], cwd=ROOT, check=False)
    if failed:
        click.echo(f"static checks that failed: {', '.join(failed)}", err=True)
    return 1 if failed else tests.returncode


def _passes(name: str, argv: tuple[str, ...]) -> bool:
    began = time.monotonic()
    program = Path(sys.executable).with_name(argv[0])
    done = subprocess.run([program, *argv[1:]], cwd=ROOT, check=False, capture_output=True, text=True)
    passed = done.returncode == 0
    click.echo(f"{name}: {'ok' if passed else 'FAILED'} ({time.monotonic() - began:.0f} s)", err=True)
    if not passed:
        click.echo(done.stdout + done.stderr, err=True)
    return passed
