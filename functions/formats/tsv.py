"""The flat results.tsv of autoresearch."""

from __future__ import annotations

import re
from collections.abc import Iterable

from state.records.experiments import ExperimentRecord

HEADER = "commit\tval_bpb\tmemory_gb\tstatus\tdescription"
HEADER_BY_DELTA = HEADER.replace("\t", "\tdelta_bpb\t", 1)
"""Header of a tag that compares deltas: the judged delta stands before the value."""
LEFT_OUT = frozenset(
    {"registered", "queued", "leased", "running", "lost", "invalid", "retracted", "measured"}
)


FORMULA = re.compile(r"[\s\"']*[=+@\-\uff1d\uff0b\uff20\uff0d]")
"""Beginning of a text that spreadsheets take for a formula, wide characters included."""


ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\n"})


def rows(
    experiments: Iterable[ExperimentRecord], *, by_delta: bool = False, for_spreadsheet: bool = False
) -> list[str]:
    """One line per finished experiment, oldest first; the value of crashes and claims is 0.000000."""
    return [
        row(e, by_delta=by_delta, for_spreadsheet=for_spreadsheet)
        for e in experiments
        if e.status not in LEFT_OUT
    ]


def row(e: ExperimentRecord, *, by_delta: bool = False, for_spreadsheet: bool = False) -> str:
    """commit (7 characters), value (6 decimals), memory in GB (1 decimal), status, description.

    `by_delta`: before the value, the judged delta (6 decimals), or an empty cell.
    `for_spreadsheet`: a description that a spreadsheet would take for a formula begins with a quote; numbers stay.
    """
    status = {"timeout": "crash", "stopped": "discard"}.get(e.status, e.status)
    measured = e.status in ("keep", "discard") and e.val_bpb is not None and not e.is_claim
    value = e.val_bpb if measured and e.val_bpb is not None else 0.0
    memory = (e.peak_vram_mb or 0.0) / 1024 if measured else 0.0
    text = e.description
    if e.is_claim:
        text += f" (claimed {e.val_bpb!r})"
    if e.status == "stopped":
        text += f" (stopped at {(e.last_progress or 0.0):.0%})".replace("%", " %")
    if for_spreadsheet and FORMULA.match(text):
        text = f"'{text}"
    judged = [f"{e.judged:.6f}" if measured and e.judged is not None else ""] if by_delta else []
    return "\t".join((e.commit_sha[:7], *judged, f"{value:.6f}", f"{memory:.1f}", status, escaped(text)))


def escaped(text: str) -> str:
    """On one line and in one column: backslash, tab and newlines are written as escapes."""
    return text.replace("\r\n", "\n").translate(ESCAPES)
