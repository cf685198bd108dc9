"""What a training log says, from plain blocks to logs written to mislead."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.formats.metrics_block import (
    classify_failure,
    deciding_line,
    failure_tail,
    last_value,
    last_values,
    newest_lines,
    parse_block,
)

BLOCK = """step 00953 (100.0%) | loss: 2.9
---
val_bpb:          0.997900
training_seconds: 300.1
total_tokens_M:   499.6
num_params_M:     50.3
depth:            8
"""


def test_the_block_is_read_with_names_in_lower_case() -> None:
    metrics = parse_block(BLOCK)

    assert metrics == {
        "val_bpb": 0.9979,
        "training_seconds": 300.1,
        "total_tokens_m": 499.6,
        "num_params_m": 50.3,
        "depth": 8.0,
    }


def test_the_last_block_wins_over_one_printed_earlier() -> None:
    assert parse_block("---\nval_bpb: 0.1\n" + BLOCK)["val_bpb"] == 0.9979


def test_a_progress_line_that_ends_in_carriage_returns_hides_neither_marker_nor_metric() -> None:
    assert parse_block("\rstep 1\rstep 2\r---\r\nval_bpb: 1.5\r\nmfu_percent: 39.8\r") == {
        "val_bpb": 1.5,
        "mfu_percent": 39.8,
    }


@pytest.mark.parametrize("line", ["----", "--- x", "x ---", "-- -", "'---'"])
def test_only_a_line_that_is_exactly_three_dashes_begins_a_block(line: str) -> None:
    assert parse_block(f"{line}\nval_bpb: 1\n") == {}


@pytest.mark.parametrize(
    "line", ["val_bpb: 39.8%", "val_bpb = 3", "val bpb: 3", "val_bpb: 1_0", "1x: 3", "val_bpb:"]
)
def test_a_line_that_is_not_a_name_and_a_number_is_passed_over(line: str) -> None:
    assert parse_block(f"---\n{line}\nok: 1\n") == {"ok": 1.0}


def test_nan_and_infinity_are_handed_on_for_the_caller_to_judge() -> None:
    metrics = parse_block("---\nval_bpb: nan\nloss: -inf\nbig: 1e999\n")

    assert math.isnan(metrics["val_bpb"])
    assert metrics["loss"] == -math.inf
    assert metrics["big"] == math.inf


@pytest.mark.parametrize(
    "hostile",
    [
        "-" * 3_000_000,
        "---\n" * 700_000,
        "\n ---x" * 500_000,
        " " * 3_000_000,
        "---\nx: " + "9" * 3_000_000,
        "---\n" + "a: 1\n" * 600_000,
        "\x1b[" * 1_000_000,
        "\n" + "\t" * 3_000_000 + "---",
        "x:" + " " * 3_000_000 + "1",
        "x: " + "9" * 3_000_000,
        "a: 1e" * 600_000,
    ],
    ids=range(11),
)
def test_megabytes_of_hostile_text_cost_no_more_than_their_length(hostile: str) -> None:
    begin = time.process_time()

    parse_block(hostile)
    last_values(hostile, ("x", "a", "val_bpb"))
    failure_tail(hostile)
    classify_failure(hostile, 1)

    assert time.process_time() - begin < 30  # quadratic work would take hours


@given(st.text())
def test_no_text_makes_any_of_them_raise(text: str) -> None:
    parse_block(text)
    parse_block("---\n" + text)
    classify_failure(text, 1)
    classify_failure(text, 0)
    tail = failure_tail(text)

    assert len(tail.encode()) <= 8192


@given(
    st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,30}", fullmatch=True), st.floats(), max_size=20),
    st.text(),
)
def test_printed_floats_read_back_exactly_whatever_stands_before(
    metrics: dict[str, float], before: str
) -> None:
    block = "".join(f"{name}: {value!r}\n" for name, value in metrics.items())

    parsed = parse_block(f"{before}\n---\n{block}")

    assert parsed.keys() == metrics.keys()
    for name, value in metrics.items():
        assert parsed[name] == value or (math.isnan(parsed[name]) and math.isnan(value))


@pytest.mark.parametrize(
    ("log", "returncode", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", 1, "oom"),
        ("Traceback\nMemoryError", 1, "oom"),
        ("ModuleNotFoundError: No module named 'torch'", 1, "import"),
        ("ImportError: cannot import name 'x'", 1, "import"),
        ("OSError: [Errno 28] No space left on device", 1, "disk"),
        ("step 3 | loss: nan\nFAIL", 1, "nan"),
        (
            "\rstep 00002 (0.1%) | loss: 9.1 | dt: 20ms    \rstep 00003 (0.2%) | loss: 101.2 | dt: 20ms    FAIL\n",
            1,
            "nan",
        ),
        ("step 3 | loss: 4.0\nFAIL\n", 1, "nan"),
        ("FAIL: test_shapes", 1, "other"),
        ("test_shapes ... FAIL", 1, "other"),
        ("RuntimeError: No CUDA GPUs are available", 1, "infra"),
        ("ValueError: no", 1, "other"),
        ("", 1, "other"),
        ("", -9, "killed"),
        ("CUDA out of memory", -15, "killed"),
        ("", 137, "killed"),
        ("done", 0, "no_metrics"),
        ("step 3 | loss: nan", 0, "nan"),
        ("---\nval_bpb: nan", 0, "nan"),
        ("the financial loss: nancy", 0, "no_metrics"),
        ("", None, "infra"),
    ],
)
def test_a_failure_is_classified_by_its_log_and_exit(log: str, returncode: int | None, kind: str) -> None:
    assert classify_failure(log, returncode) == kind


def test_the_evidence_that_stands_last_decides() -> None:
    log = "ImportError: no flash attention, using the slow one\nstep 1\nCUDA out of memory"

    assert classify_failure(log, 1) == "oom"


@pytest.mark.parametrize(
    ("log", "value"),
    [
        ("val_bpb: 1.5\nrows: 3\nval_bpb: 1.25\n", 1.25),
        ("step 1\rVAL_BPB:\t1e-3", 0.001),
        ("---\nval_bpb: 1.5\n---\nrows: 3", 1.5),
        ("val_bpb: 1.5\n| val_bpb: 0.3\nthe val_bpb: 0.3\nval_bpb: 0.3 and more\n", 1.5),
        ("val_bpb: " + "0" * 500 + "1\n", None),
        ("my_val_bpb: 0.3\nval_bpb = 0.3", None),
    ],
)
def test_an_evaluator_s_value_is_that_of_the_last_line_that_is_nothing_else(
    log: str, value: float | None
) -> None:
    assert last_value(log, "val_bpb") == value


def test_of_several_names_each_has_its_own_last_line() -> None:
    log = "Loss: 3\nval_bpb: 2\nloss: 1\nother: 5\n" + "x" * 300_000 + "\n"

    assert last_values(log, ("val_bpb", "loss", "missing")) == {"val_bpb": 2.0, "loss": 1.0}


def test_a_run_over_its_time_is_a_timeout_whatever_it_printed() -> None:
    assert classify_failure("CUDA out of memory", -9, timed_out=True) == "timeout"


def test_the_tail_holds_the_last_fifty_lines_with_the_error_lines_first() -> None:
    log = "\n".join(f"line {n}" for n in range(100)) + "\nValueError: bad shape\nbye\n"

    tail = failure_tail(log).split("\n")

    assert tail == ["ValueError: bad shape", *(f"line {n}" for n in range(52, 100)), "bye"]


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
def test_the_line_that_decides_is_the_error_or_what_the_lab_says(
    reason: str, log: str, kind: str, line: str | None
) -> None:
    stored = f"{reason}\nits files are kept\n{failure_tail(log)}"

    assert deciding_line(stored, kind) == (line or reason)


@pytest.mark.parametrize(
    ("error", "line"), [("boom", "boom"), ("Traceback\n  at x\nOops: y", "Oops: y"), (" \n", "")]
)
def test_the_line_that_decides_of_an_agent_s_own_error(error: str, line: str) -> None:
    assert deciding_line(error, "other") == line


def test_the_tail_is_capped_in_bytes_and_keeps_the_error() -> None:
    tail = failure_tail("ValueError: bad shape\n" + "é" * 300 + "\n" + "ü" * 300, max_bytes=700)

    assert tail == "ValueError: bad shape\n" + "ü" * 300


def test_escape_sequences_and_control_characters_are_stripped() -> None:
    log = "\x1b[31mred\x1b[0m \x1b]0;title\x07plain\x00\x08 \u202etfel\u2028x\tend"

    assert failure_tail(log) == "red plain tfelx\tend"


def test_of_an_overwritten_progress_line_only_the_last_state_is_shown() -> None:
    assert newest_lines("start\n\rstep 1\rstep 2\rstep 3\r\nend\n") == "start\nstep 3\nend"
