"""What the progress lines of training scripts say, however they are printed and cut."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.attempt.output import LONGEST_LINE, ProgressLines, Tick

FAMILIAR = (
    "\rstep {step:05d} ({percent:.1f}%) | loss: {loss:.6f} | lrm: 1.00 | dt: 300ms | tok/sec: 400,000"
    " | mfu: 40.0% | epoch: 1 | remaining: 280s    "
)
"""As autoresearch's script prints it: it is overwritten in place, and never ended."""


def familiar(step: int, percent: float, loss: float) -> str:
    return FAMILIAR.format(step=step, percent=percent, loss=loss)


def ticks(*pieces: str | bytes) -> list[Tick]:
    """What these pieces of an output tell."""
    lines = ProgressLines()
    encoded = (piece.encode() if isinstance(piece, str) else piece for piece in pieces)
    return [tick for piece in encoded for tick in lines.feed(piece)]


def test_each_overwritten_line_is_a_tick_and_the_last_one_needs_no_end() -> None:
    printed = familiar(0, 0, 9.01) + familiar(123, 12.3, 2.345678) + familiar(124, 12.4, 2.3)
    assert ticks(printed) == [(9.01, 0.0), (2.345678, 0.123), (2.3, 0.124)]


@pytest.mark.parametrize(
    "line",
    [
        "step 00123 (12.3%) | loss: 2.5\n",
        "step 00123 (12.3%) | loss: 2.5 |",
        "step 00123/01000 (12.30%) | loss: 2.5 | grad norm: 0.1230 | lrm: 1.00\n",
        "  Step 123 (12.3 %) | lr: 1e-3 | Loss: 2.5\r\n",
        "\x1b[2K\r\x1b[1;32mstep\x1b[0m 00123 (12.3%) | \x1b[33mloss: 2.5\x1b[0m |",
        "step 00123 (12.3%)|loss:25e-1|",
        "warming up\nstep 00123 (12.3%) | loss: +2.5 |",
        "step 00123 (12.3%) | loss: 2.5 | caf\u00e9 \u2026\n",
    ],
)
def test_a_line_counts_wherever_it_stands_and_whatever_else_it_has(line: str) -> None:
    assert ticks(line) == [(2.5, 0.123)]


@pytest.mark.parametrize(
    "line",
    [
        *("step 00123 (12.3%) | loss: nan |", "step 00123 (12.3%) | loss: inf | loss: 2.5 |"),
        *("step 00123 (12.3%) | loss: -1e999 |", "step 00123 (12.3%) | loss: 1_0 |"),
        *("step 00123 (12.3%) | loss: 2.5 nats |", "step 00123 (12.3%) | val_loss: 2.5 |"),
        *("step 00123 (12.3%) loss: 2.5\n", "step 00123 | loss: 2.5 |", "step 00123 (nan%) | loss: 2.5 |"),
        *("step 00123 (-12.3%) | loss: 2.5 |", "best step 00123 (12.3%) | loss: 2.5 |"),
        *("step 00123 (12.3%) | loss: 2.5", "loss: 2.5\n", "\n\r|\r\n"),
    ],
)
def test_what_is_no_whole_progress_line_with_a_finite_loss_is_passed_over(line: str) -> None:
    assert ticks(line) == []


def test_a_number_that_is_cut_in_two_is_read_once_it_is_whole() -> None:
    lines = ProgressLines()
    assert lines.feed(b"\rstep 00010 (1.0%) | loss: 2.3") == []
    assert lines.feed(b"456") == []
    assert lines.feed(b"78 ") == []
    assert lines.feed(b"| lrm: 1.00 | dt: 300ms") == [(2.345678, 0.01)]
    assert lines.feed(b" | epoch: 1\r") == []


def test_a_line_longer_than_any_is_read_as_far_as_its_beginning_and_kept_no_further() -> None:
    lines = ProgressLines()

    assert lines.feed(b"step 1 (10%) | loss: 3 | " + b"x" * 10_000_000) == [(3.0, 0.1)]
    for _ in range(100):
        assert lines.feed(b"x" * 100_000 + b"| loss: 1 |") == []
    assert len(lines._begun) <= LONGEST_LINE + 1
    assert lines.feed(b"\nstep 2 (20%) | loss: 2\n") == [(2.0, 0.2)]
    assert ticks("step 3 (30%) | " + "x" * LONGEST_LINE + " | loss: 1 |\n") == []


@pytest.mark.parametrize(
    "hostile",
    [
        *(b"\r" * 3_000_000, b"|" * 3_000_000, b"step " * 600_000, b"step 1 (1" * 300_000),
        *(b"step 1 (1%) | loss: 1" * 150_000, b"\x1b]" * 1_500_000, (b" " * 390 + b"|\n") * 7_000),
        bytes(range(256)) * 12_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_an_output_that_is_written_to_take_long_takes_no_longer(hostile: bytes) -> None:
    lines = ProgressLines()
    begun = time.process_time()
    for at in range(0, len(hostile), 65_536):
        lines.feed(hostile[at : at + 65_536])
    assert time.process_time() - begun < 30


LINES = st.one_of(
    st.builds(familiar, st.integers(0, 99999), st.floats(0, 120), st.floats(0, 20)),
    st.sampled_from(
        ["step 1 (1%) | loss: 3\n", "\x1b[31mstep 2 (2%) | loss: nan |\n", "---\nval_bpb: 1\r", "\r"]
    ),
    st.text("step 012(%)|los:.\x1b[m\r\n", max_size=60),
)


@given(st.lists(LINES, max_size=12), st.data())
def test_how_an_output_is_cut_into_pieces_changes_nothing(printed: list[str], data: st.DataObject) -> None:
    whole = "".join(printed).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=20)))
    pieces = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert ticks(*pieces) == ticks(whole)


@given(st.binary(max_size=2000))
def test_whatever_is_printed_every_tick_is_a_finite_loss_and_no_share_falls(output: bytes) -> None:
    found = ticks(output, b"\rstep 1 (50%) | loss: 1 |", output)
    assert (1.0, 0.5) in found
    shares = [share for _, share in found]
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)
