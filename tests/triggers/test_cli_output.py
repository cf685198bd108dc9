"""How the commands print what agents wrote: nothing of it commands a terminal or turns a line around."""

from __future__ import annotations

import json
import re
import sys
import unicodedata

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from functions.kernel.table import table
from state.errors import BudgetExhausted
from triggers.cli import demo
from triggers.cli.__main__ import COMMANDS, main, nightjar
from triggers.cli.output import (
    BUDGET,
    OWN_COMMANDS,
    as_commands,
    exit_code,
    json_text,
    printable,
    show,
)
from triggers.cli.runs import measured, outcome, print_runs, value
from triggers.cli.tables import Column, print_table

HOSTILE = "a\x1b[2J\x07\x7f\x9b31m\u202eb\u2066c\u200fd\ufeff\U000e0041"
SHOWN = r"a\x1b[2J\x07\x7f\x9b31m\u202eb\u2066c\u200fd\ufeff\U000e0041"


def unseen(text: str) -> set[str]:
    """Control and format characters in a text."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf")} - {"\n"}


def test_control_and_bidirectional_characters_are_shown_as_escapes() -> None:
    assert printable(HOSTILE) == SHOWN
    assert (
        printable("two\r\nlines\tand\u3000columns, \u00fcber 5\u00b5s")
        == "two  lines and columns, \u00fcber 5\u00b5s"
    )


@given(st.text())
def test_whatever_an_agent_wrote_is_printable_on_one_line(text: str) -> None:
    assert printable(text).isprintable()


@given(st.text())
def test_json_has_no_control_character_and_says_the_same(text: str) -> None:
    told = json_text({"text": text})

    assert not unseen(told) & unseen(HOSTILE)
    assert json.loads(told) == {"text": text}


def test_tables_and_lines_show_them_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column("tag"), Column(HOSTILE)], [("t", HOSTILE)])
    show(f"two\nlines: {HOSTILE}")

    told = capsys.readouterr().out
    assert told.count(SHOWN) == 3
    assert "two\nlines" in told
    assert not unseen(told)


def test_the_demo_shows_them_escaped_and_nothing_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    e = RUN | {"description": f"[red]{HOSTILE}[/]"}

    print_runs([e], {})
    Console().print(demo.line(e, 0.1), soft_wrap=True)

    told = capsys.readouterr().out
    assert told.count(f"[red]{SHOWN[:20]}") == 2
    assert not unseen(told)


RUN = {
    "id": "demo-1",
    "experiment_id": "demo-1",
    "status": "keep",
    "val_bpb": 1.0,
    "judged_val_bpb": None,
    "delta_bpb": None,
    "by_value": False,
    "baseline": False,
    "claimed": False,
    "delta": None,
    "agent": "a",
    "trust": None,
    "hung": False,
    "category": "other",
    "description": "d",
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "discard", "hung": True}, "discard, hung"),
        ({"trust": "confirmed", "hung": True}, "keep, confirmed, hung"),
        ({"trust": "first", "hung": True}, "first, hung"),
        ({"baseline": True, "trust": "first"}, "baseline"),
        ({"baseline": True, "status": "crash"}, "baseline: crash"),
        ({"trust": "first"}, "first"),
        ({"trust": "provisional"}, "keep, provisional"),
        ({"status": "discard", "trust": "demoted"}, "discard, demoted"),
    ],
)
def test_an_outcome_says_what_a_verdict_is_worth(changes: dict[str, object], words: str) -> None:
    assert outcome(RUN | changes) == words


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, ("1.000000", "")),
        ({"delta_bpb": -0.25}, ("-0.250000", "1.000000")),
        ({"delta_bpb": -0.25, "by_value": True}, ("1.000000", "")),
        ({"delta_bpb": -0.25, "by_value": True, "judged_val_bpb": 1.5}, ("1.500000", "")),
    ],
)
def test_a_value_is_shown_as_it_is_compared(changes: dict[str, object], shown: tuple[str, str]) -> None:
    run = RUN | changes
    assert (value(run), measured(run)) == shown


@pytest.mark.parametrize(
    ("hint", "command"),
    [
        ("GET /api/experiment/mar-11-7 shows it", "./nightjar show mar-11-7 shows it"),
        ("wait: GET /api/experiment/t-7.2/wait; then", "wait: ./nightjar wait t-7.2; then"),
        ("POST /api/experiment/history lists them", "./nightjar ls lists them"),
        ("POST /api/tag/unpause", "./nightjar unpause"),
        ("create it with POST /api/experiment/setup", "create it with ./nightjar setup"),
    ],
)
def test_a_hint_names_the_short_command_where_there_is_one(hint: str, command: str) -> None:
    assert as_commands(hint) == command


def test_every_route_of_a_function_becomes_the_command_that_calls_it() -> None:
    routes = {
        f"{door.method} {door.path}": name
        for name, declared in table().items()
        for door in declared.doors
        if re.fullmatch("/api/[a-z]+/[a-z-]+", door.path)
    }

    called = {route: as_commands(f"{route}.").removesuffix(".") for route in routes}

    assert len(routes) > 100
    own = {f"./nightjar {command}" for command in OWN_COMMANDS.values()}
    wrong = {r: c for r, c in called.items() if c not in own and c != f"./nightjar call {routes[r]}"}
    assert wrong == {}


@pytest.mark.parametrize(("no_color", "shown"), [("", "\x1b[31mred\x1b[0m\n"), ("1", "red\n")])
def test_a_terminal_shows_colours_unless_its_user_wants_none(
    no_color: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def red() -> None:
        click.secho("red", fg="red")

    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(nightjar, "get_command", lambda ctx, name: red)
    monkeypatch.setattr(sys, "argv", ["nightjar", "red"])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    main()

    assert capsys.readouterr().out == shown


def test_the_help_fits_a_screen_of_51_lines_with_one_for_each_command() -> None:
    shown = CliRunner().invoke(nightjar, ["--help"], terminal_width=80).output.splitlines()

    assert len(shown) <= 51
    assert {line.split()[0] for line in shown if line.startswith("  ")} >= COMMANDS.keys()
    assert "  -h, --help, --version  show this message, or the version" in shown


def test_a_budget_that_is_used_up_has_an_exit_code_of_its_own() -> None:
    assert exit_code(BudgetExhausted("no runs are left")) == BUDGET == 6
