"""How the commands print, and their exit codes."""

from __future__ import annotations

import functools
import json
import re
import sys
import unicodedata
from typing import Any

import click

from functions.kernel.process.redaction import presentable
from state.errors import BudgetExhausted, Forbidden, NightjarError, Unauthenticated
from state.program import PROGRAM

OK, ERROR, USAGE, DISCARD, CRASH, RUNNING, BUDGET, AUTH, STOPPED, LOST = range(10)

EXIT_CODES = {
    OK: "ok/keep/measured",
    ERROR: "error",
    USAGE: "usage",
    DISCARD: "discard/retracted",
    CRASH: "crash/timeout/invalid",
    RUNNING: "still running",
    BUDGET: "budget",
    AUTH: "auth",
    STOPPED: "stopped",
    LOST: "lost",
}
"""The meaning of each exit code; part of the interface, shown in docs/operator.md."""

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


_UNSEEN = re.compile(
    r"[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
)
"""Control and format characters that JSON does not escape."""


_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_RUN = re.compile(r"GET /api/experiment/([\w.-]*-\d+(?:\.\d+)?)(/wait)?")
OWN_COMMANDS = {
    "experiment::history": "ls",
    "experiment::setup": "setup",
    "experiment::stop": "stop",
    "pool::list": "status",
    "pool::register": "call pool::register_gpu",
    "search::suggest": "call search::suggest_direction",
    "tag::pause": "pause",
    "tag::unpause": "unpause",
    "webhook::list": "webhook list",
}
"""Commands for routes that differ from `call` with the words of the route."""
_ROUTE = re.compile(r"(?:GET|POST) /api/([a-z]+)/([a-z-]*[a-z])(?![\w/{]|\.\w)")


def explain(problem: NightjarError) -> int:
    """Print the error and its hint to standard error; returns the exit code."""
    click.echo(f"nightjar: {printable_lines(presentable(problem.detail))}", err=True)
    if problem.hint:
        click.echo(f"  -> {printable_lines(as_commands(presentable(problem.hint)))}", err=True)
    return exit_code(problem)


def as_commands(hint: str) -> str:
    """A hint with commands instead of the routes that agents call."""
    hint = _RUN.sub(lambda run: f"{PROGRAM} {'wait' if run[2] else 'show'} {run[1]}", hint)
    return _ROUTE.sub(lambda route: f"{PROGRAM} {command_of(f'{route[1]}::{route[2]}')}", hint)


def command_of(route: str) -> str:
    """The command for `/api/<noun>/<verb>`, given as `<noun>::<verb>`."""
    return OWN_COMMANDS.get(route, f"call {route.replace('-', '_')}")


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
    """An agent's text on one line, with control and bidirectional characters escaped."""
    return text if text.isprintable() else "".join(map(_shown, text))


def printable_lines(text: str) -> str:
    """The same for text with several lines."""
    return "\n".join(map(printable, text.split("\n")))


def _shown(c: str) -> str:
    if c.isprintable():
        return c
    if c in "\t\n\r" or unicodedata.category(c).startswith("Z"):
        return " "
    return c.encode("unicode_escape").decode()


def counted(count: int, noun: str) -> str:
    """Such as `1 experiment` or `2 experiments`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def say(line: str) -> None:
    """Print a line of our own to standard error; it may contain an agent's text."""
    click.echo(f"nightjar: {printable(line)}", err=True)


note = functools.partial(click.echo, err=True)
"""Print to standard error, as it is."""


def show(text: str) -> None:
    """Print lines that may contain an agent's text, without cutting or wrapping."""
    click.echo(printable_lines(text))


def show_patch(text: str) -> None:
    """Print a patch, on a terminal in colours."""
    for line in text.splitlines():
        click.secho(printable(line), fg=_COLOURS.get(line[:1]), bold=line.startswith("diff "))


def print_json(value: Any) -> None:
    """Print one JSON document: indented on a terminal, else on one line."""
    click.echo(json_text(value, indent=2 if sys.stdout.isatty() else None))


def print_answer(answer: Any, as_json: bool, text: str) -> None:
    """Print a function's answer as JSON, or the text that tells people of it."""
    if as_json:
        print_json(answer)
    else:
        show(text)


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON for programs and terminals, with control and bidirectional characters escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


class Suggesting(click.Group):
    """A group that suggests similar commands for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            import difflib  # imported late: few names are mistyped

            near = difflib.get_close_matches(name, self.list_commands(ctx), n=3)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"there is no command {printable(name)!r}{meant}", ctx)
        return super().resolve_command(ctx, args)
