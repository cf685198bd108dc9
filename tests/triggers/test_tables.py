"""Tables in a pipe and on a terminal: ids and numbers are whole, texts are cut, spare columns left out."""

from __future__ import annotations

import re
import shutil
import sys
from os import terminal_size

import pytest
from rich.cells import cell_len

from triggers.cli.tables import PIPE_WIDTH, Column, print_table

TAG = "a-tag-of-forty-letters-which-is-the-most"
RUN = f"{TAG}-12345.2"
COLUMNS = (
    Column("tag"),
    Column("best", spare=2),
    Column("gain", right=True),
    Column("by", spare=1),
    Column("why", text=20),
)


def cells(line: str) -> list[str]:
    """As `awk -F'  +'` reads them."""
    return re.split(" {2,}", line.strip())


def test_a_row_is_one_line_of_100_columns_whose_ids_and_numbers_are_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(COLUMNS[:1] + COLUMNS[2:], [(TAG, "-12345.678901", "an-agent", "a wider model " * 30)])

    head, row = capsys.readouterr().out.splitlines()
    assert cells(head) == ["tag", "gain", "by", "why"]
    assert cells(row)[:3] == [TAG, "-12345.678901", "an-agent"]
    assert row.endswith("…")
    assert PIPE_WIDTH - 2 <= len(row) <= PIPE_WIDTH


def test_spare_columns_are_left_out_in_their_order_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, [(TAG, RUN, "+0.001234", "an-agent", "a wider model " * 30)])

    told = capsys.readouterr()
    assert cells(told.out.splitlines()[0]) == ["tag", "gain", "by", "why"]
    assert "best" in told.err


def test_an_empty_cell_and_a_text_with_gaps_move_no_other_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, [("t", "", "", "an  agent", "two\nlines  of \x1b[31m red")])

    told = capsys.readouterr().out
    assert cells(told.splitlines()[1]) == ["t", "-", "an agent", r"two lines of \x1b[31m red"]


def test_characters_of_two_columns_are_counted_as_two(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column("id"), Column("what", text=20)], [("t-1", "更宽的模型" * 30), ("t-2", "short")])

    _, wide, short = capsys.readouterr().out.splitlines()
    assert cell_len(wide) <= PIPE_WIDTH
    assert cells(short) == ["t-2", "short"]


def test_a_terminal_s_own_width_holds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda **_: terminal_size((70, 20)))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    print_table(COLUMNS, [("mar11", "mar11-7", "+0.001234", "an-agent", "a wider model " * 30)])

    row = capsys.readouterr().out.splitlines()[1]
    assert cells(row)[:4] == ["mar11", "mar11-7", "+0.001234", "an-agent"]
    assert len(row) <= 70
