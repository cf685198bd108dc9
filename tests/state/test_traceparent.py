"""Which `traceparent` headers are taken over, and what a new trace looks like."""

from __future__ import annotations

import subprocess
import sys

import pytest

from state.traceparent import accepted, begun, trace_id
from tests.conftest import ROOT

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize("flags", ["00", "01", "ff"])
def test_a_header_of_version_00_is_taken_over_as_it_is(flags: str) -> None:
    header = f"00-{TRACE}-{SPAN}-{flags}"

    assert accepted(header) == header


@pytest.mark.parametrize("version", ["01", "cc", "fe"])
@pytest.mark.parametrize("more", ["", "-", "-what-comes-later"])
def test_a_later_version_is_read_as_far_as_version_00_goes(version: str, more: str) -> None:
    assert accepted(f"{version}-{TRACE}-{SPAN}-01{more}") == f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "header",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"01-{TRACE}-{SPAN}-01more",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
    ],
)
def test_what_the_standard_calls_invalid_is_ignored(header: str) -> None:
    assert accepted(header) is None


def test_two_headers_are_as_good_as_none() -> None:
    header = f"00-{TRACE}-{SPAN}-01"

    assert accepted() is None
    assert accepted(header, header) is None


def test_a_new_trace_is_valid_is_nobody_else_s_and_claims_no_recording() -> None:
    traces = [begun() for _ in range(100)]

    assert all(accepted(t) == t for t in traces)
    assert all(t.endswith("-00") for t in traces)
    assert len({trace_id(t) for t in traces}) == 100


FORKED = """
import os
from state.traceparent import begun
for nth in range(3):
    if os.fork() == 0:
        os.write(1, (begun() + chr(10)).encode())
        os._exit(0)
    os.wait()
print(begun())
"""


def test_processes_that_were_forked_begin_different_traces() -> None:
    told = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert len({trace_id(line) for line in told.stdout.split()}) == 4
