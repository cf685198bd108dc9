"""Which `traceparent` headers are taken over, and what a new trace looks like."""

from __future__ import annotations

import subprocess
import sys

from state.traceparent import accepted, begun, trace_id
from tests.conftest import ROOT

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_version_00_is_taken_over_as_it_is_and_a_later_one_is_read_as_far_as_version_00_goes() -> None:
    for flags in ("00", "01", "ff"):
        assert accepted(f"00-{TRACE}-{SPAN}-{flags}") == f"00-{TRACE}-{SPAN}-{flags}"
    for version in ("01", "cc", "fe"):
        for more in ("", "-", "-what-comes-later"):
            assert accepted(f"{version}-{TRACE}-{SPAN}-01{more}") == f"00-{TRACE}-{SPAN}-01", version + more


INVALID = [
    *("", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01"),
    *(f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-more", f"00-{TRACE}-{SPAN}-01-"),
    *(f"00-{TRACE}-{SPAN}", f"00-{TRACE}-{SPAN}-1", f"01-{TRACE}-{SPAN}-01more", f"0-{TRACE}-{SPAN}-01"),
    f"00-{TRACE[:-1]}g-{SPAN}-01",
]


def test_what_the_standard_calls_invalid_and_two_headers_are_as_good_as_none() -> None:
    for header in INVALID:
        assert accepted(header) is None, header
    assert accepted() is None
    assert accepted(f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01") is None


def test_a_new_trace_is_valid_is_nobody_else_s_and_claims_no_recording() -> None:
    traces = [begun() for _ in range(100)]
    assert all(accepted(t) == t for t in traces)
    assert all(t.endswith("-00") for t in traces)
    assert len({trace_id(t) for t in traces}) == 100


def test_processes_that_were_forked_begin_different_traces() -> None:
    forks = "import os; from state.traceparent import begun; os.fork(); os.fork()"
    code = f"{forks}; os.write(1, (begun() + ' ').encode())"  # each in one write
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert len({trace_id(line) for line in told.stdout.split()}) == 4
