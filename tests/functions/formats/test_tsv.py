"""The flat table: five columns, whatever stands in the texts."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.formats.tsv import HEADER, HEADER_BY_DELTA, row
from state.records import Status
from tests.functions.sample import experiment

STATUSES = get_args(Status)  # those of retests too


@given(st.sampled_from(STATUSES), st.text(min_size=1), st.none() | st.floats(-1e6, 1e6))
def test_a_row_is_one_line_of_five_columns(status: str, text: str, value: float | None) -> None:
    line = row(experiment(status=status, description=text, val_bpb=value))
    assert len(line.split("\t")) == len(HEADER.split("\t")) == 5
    assert "\n" not in line
    assert "\r" not in line


@given(st.text(min_size=1))
def test_an_escaped_text_can_be_read_back(text: str) -> None:
    shown = row(experiment(status="keep", description=text, val_bpb=1.0)).split("\t")[4]
    plain, rest = "", shown
    while rest:
        pair = {"\\\\": "\\", "\\t": "\t", "\\n": "\n"}.get(rest[:2])
        plain, rest = (plain + pair, rest[2:]) if pair else (plain + rest[0], rest[1:])
    assert plain == text.replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", " =", "\t=", '"=', "\uff1d"])
def test_a_text_that_a_spreadsheet_would_run_is_quoted_where_that_is_asked_for(begin: str) -> None:
    evil = experiment(status="keep", val_bpb=-0.5, description=f"{begin}cmd|' /C calc'!A0")
    plain, quoted = (row(evil, for_spreadsheet=asked).split("\t") for asked in (False, True))
    assert quoted[4] == "'" + plain[4]
    assert quoted[:4] == plain[:4] == ["abc1234", "-0.500000", "0.0", "keep"]


def test_where_deltas_are_compared_the_judged_one_stands_before_the_value() -> None:
    kept = experiment(status="keep", val_bpb=0.85, delta_bpb=-0.15, judged_val_bpb=-0.125)
    crashed = experiment(status="crash")
    rounded = experiment(status="keep", val_bpb=0.99785449, peak_vram_mb=45060.2)
    assert row(rounded) == "abc1234\t0.997854\t44.0\tkeep\td"
    assert HEADER_BY_DELTA.split("\t")[:3] == ["commit", "delta_bpb", "val_bpb"]
    assert row(kept, by_delta=True) == "abc1234\t-0.125000\t0.850000\t0.0\tkeep\td"
    assert row(crashed, by_delta=True) == "abc1234\t\t0.000000\t0.0\tcrash\td"
