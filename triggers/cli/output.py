"""How the commands print, and their exit codes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from functions.process.redaction import presentable
from state.errors import BudgetExhausted, Forbidden, NightjarError, Unauthenticated

if TYPE_CHECKING:
    from rich.console import Console

OK, ERROR, USAGE, DISCARD, CRASH, RUNNING, BUDGET, AUTH, STOPPED, LOST = range(10)

EXIT_CODES = {
    OK: "ok, keep or measured",
    ERROR: "error",
    USAGE: "usage",
    DISCARD: "discard (also retracted)",
    CRASH: "crash (also timeout and invalid)",
    RUNNING: "still running",
    BUDGET: "budget",
    AUTH: "auth",
    STOPPED: "stopped",
    LOST: "lost",
}
"""The meaning of each exit code; part of the interface, shown in README."""

BY_STATUS = {
    "keep": OK,
    "measured": OK,
    "discard": DISCARD,
    "crash": CRASH,
    "timeout": CRASH,
    "invalid": CRASH,
    "registered": RUNNING,
    "queued": RUNNING,
    "leased": RUNNING,
    "running": RUNNING,
    "retracted": DISCARD,
    "stopped": STOPPED,
    "lost": LOST,
}
"""Exit code for an experiment's status."""


PLAIN_WIDTH = 1000
"""Columns of text that goes to a pipe or a file."""


def explain(problem: NightjarError) -> int:
    """Print the error and its hint to standard error; returns the exit code."""
    click.echo(f"nightjar: {presentable(problem.detail)}", err=True)
    if problem.hint:
        click.echo(f"  -> {presentable(problem.hint)}", err=True)
    return exit_code(problem)


def exit_code(problem: NightjarError) -> int:
    """The exit code of a command that fails with this error."""
    match problem:
        case BudgetExhausted():
            return BUDGET
        case Unauthenticated() | Forbidden():
            return AUTH
        case _:
            return ERROR


def printable(text: str) -> str:
    """Text of an agent on one line, without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def for_people() -> Console:
    """Standard output for tables and lines; in a pipe or a file nothing is cut or wrapped."""
    from rich.console import Console  # imported late: commands that print JSON start faster without it

    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def print_json(value: Any) -> None:
    """Print one JSON document: indented on a terminal, else on one line."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(value, indent=indent, ensure_ascii=False))
