"""The lines of a training log that people are shown, of logs written to mislead too."""

from __future__ import annotations

import time

import pytest

from functions.formats.metrics_block import deciding_line, failure_tail, remedies_in, with_remedies

HOSTILE = [
    *(" " * 3_000_000, "\x1b[" * 1_000_000, "\x1b]" * 1_000_000, "error " * 500_000, "\n" * 3_000_000),
    "\r" * 3_000_000,
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_megabytes_of_hostile_text_cost_no_more_than_their_length(hostile: str) -> None:
    begin = time.process_time()
    failure_tail(hostile)
    assert time.process_time() - begin < 30  # quadratic work would take hours


def test_the_tail_holds_the_last_fifty_lines_with_the_error_lines_first_as_a_reader_sees_them() -> None:
    log = "\n".join(f"line {n}" for n in range(100)) + "\nValueError: bad shape\nbye\n"
    assert failure_tail(log).split("\n") == [
        "ValueError: bad shape",
        *(f"line {n}" for n in range(52, 100)),
        "bye",
    ]
    assert len(failure_tail("é\n" * 9000).encode()) <= 8192
    log = "ValueError: bad shape\n" + "é" * 300 + "\n" + "ü" * 300
    assert failure_tail(log, max_bytes=700) == "ValueError: bad shape\n" + "ü" * 300
    assert failure_tail(log, max_bytes=620) == "ValueError: bad shape"
    log = "\x1b[31mred\x1b[0m \x1b]0;title\x07plain\x00\x08 \u202etfel\u2028x\tend"
    assert failure_tail(log) == "red plain tfelx\tend"


CUDA = 'Traceback (most recent call last):\n  File "train.py", line 3\n    fit()\nRuntimeError: CUDA out of memory'
NO_MODULE = (
    "Traceback (most recent call last):\n    import nosuch\nModuleNotFoundError: No module named 'nosuch'"
)


@pytest.mark.parametrize(
    ("reason", "log", "kind", "line"),
    [
        ("exited with 1", CUDA, "oom", "RuntimeError: CUDA out of memory"),
        ("exited with 1", NO_MODULE, "import", "ModuleNotFoundError: No module named 'nosuch'"),
        ("exited with 0 but printed no line `val_bpb: NUMBER`", "error 3 of 9\nhello", "no_metrics", None),
        ("still running at its time limit", "start\nerror: none", "timeout", None),
        ("exited with 7", "start\nstep 2", "other", None),
    ],
)
def test_the_line_that_decides_is_the_error(reason: str, log: str, kind: str, line: str | None) -> None:
    stored = f"{reason}\nits files are kept\n{failure_tail(log)}"
    assert deciding_line(stored, kind) == (line or reason)


@pytest.mark.parametrize(
    "error", ["exited with 1", "exited with 1\nValueError: x", "x\n-> open the home\n-> so"]
)
def test_only_what_was_put_there_as_a_remedy_is_one(error: str) -> None:
    assert remedies_in(with_remedies(error, ())) == []
    told = with_remedies(error, ["start it\n-> anew", "wait"])
    assert remedies_in(told) == ["start it -> anew", "wait"]
    assert told.split("\n")[0] == error.split("\n")[0]
    assert deciding_line(told, "other") == deciding_line(error, "other")
