"""Reads a training log: named numbers, lines that speak of an error, the last lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from state.errors import Invalid

if TYPE_CHECKING:
    from state.records import Direction

FailureKind = Literal[
    "oom",
    "nan",
    "timeout",
    "import",
    "killed",
    "no_metrics",
    "disk",
    "patch",
    "constant",
    "evaluator",
    "leak",
    "guard",
    "infra",
    "other",
]
"""Why a run has no result. `patch`: it does not apply. `constant`: the script sets one again, to another value.
`evaluator`: the code changes how it is scored. `leak`: its predictions use what they must not know. `guard`: it did
not pass the command of the tag's guards."""

MEASURES = (
    "peak_vram_mb",
    "training_seconds",
    "total_tokens_m",
    "mfu_percent",
    "num_steps",
    "num_params_m",
    "depth",
)
"""Measurements beside the metric that have a meaning of their own."""

LONGEST_LINE = 400
"""Characters of a line that are read; lines of a script may be of any length."""

LONGEST_NAME = 100
"""Characters of a metric's name: lists show the names of a thousand runs at once."""
REMEDY = "-> "
"""Begins a line of an error that says what helps."""
EVIDENCE_CHARACTERS = 256 * 1024
TAIL_LINES, TAIL_BYTES = 50, 8192
"""Most of the end of a log that is kept, in UTF-8."""

_NAME = re.compile(r"[a-z_][a-z0-9_./@-]{0,79}", re.ASCII)
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)", re.ASCII | re.IGNORECASE
)

_ERROR_LINE = re.compile(
    r"(?:Error|Exception|Interrupt)\b|\berror\b|\bfatal\b|out of memory|\bFAIL\b|\bKilled\b"
    r"|Segmentation fault"
)
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movement
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]?"
)
# C0 but tab, DEL, C1, the bidirectional controls and separators that can fake a line, and lone surrogates
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def named_number(text: str, metric: str = "") -> tuple[str, float] | None:
    """The name, in lower case, and the number of a text `name: NUMBER`; it may be NaN or infinite.

    Names are words; the `metric`, in lower case, may have spaces too.
    """
    name, _, number = text.partition(":")
    name = name.strip().lower()
    if not (name == metric or _NAME.fullmatch(name)) or not _NUMBER.fullmatch(number := number.strip()):
        return None
    return name, float(number)


def without_escapes(text: str) -> str:
    """The text without a terminal's escape sequences: colours, cursor movement, titles."""
    return _ESCAPES.sub("", text)


def without_controls(text: str) -> str:
    """The text without escape sequences and control characters."""
    return _CONTROL.sub("", without_escapes(text))


def is_metric_name(name: str) -> bool:
    """Whether a name of a number is short and printable."""
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()


def failure_tail(log: str, max_bytes: int = TAIL_BYTES) -> str:
    """The last lines in order, those that speak of an error first, in at most `max_bytes` of UTF-8.

    Escape sequences and control characters are taken out, and of a progress line that was overwritten in
    place only its last state is kept. What does not fit is dropped from the oldest line on, and lines that
    speak of an error are dropped last.
    """
    recent = _newest(log, TAIL_LINES)
    errors = [line for line in recent if _ERROR_LINE.search(line)]
    others = [line for line in recent if not _ERROR_LINE.search(line)]

    shown = _fitting(errors, max_bytes)
    room = max_bytes - sum(len(line.encode()) + 1 for line in shown)
    if len(shown) == len(errors):
        shown += _fitting(others, room)
    return "\n".join(shown)


def deciding_line(error: str, kind: str | None) -> str:
    """The most informative line of a stored error, or "".

    The lab's own begin with how the run ended, then comes `failure_tail`. Of other errors the last line that speaks
    of one counts, as in a traceback.
    """
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    if not lines:
        return ""
    speaking = [line for line in lines if _ERROR_LINE.search(line[:LONGEST_LINE])]
    if kind in _TOLD_BY_THE_LAB or not speaking:
        return lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return speaking[-1]


def with_remedies(error: str, remedies: Iterable[str]) -> str:
    """An error with remedies below its first line; other lines cannot pass for remedies."""
    reason, newline, rest = error.replace(f"\n{REMEDY}", f"\n {REMEDY}").partition("\n")
    told = (f"\n{REMEDY}{' '.join(remedy.split())}" for remedy in remedies)
    return f"{reason}{''.join(told)}{newline}{rest}"


def remedies_in(error: str) -> list[str]:
    """The remedies in a stored error (`with_remedies`)."""
    told = itertools.takewhile(lambda line: line.startswith(REMEDY), error.split("\n")[1:])
    return [line.removeprefix(REMEDY) for line in told]


_TOLD_BY_THE_LAB = frozenset({"timeout", "no_metrics"})
"""Kinds of failure that the lab explains, not the script."""


def newest_lines(log: str, lines: int = TAIL_LINES) -> str:
    """The last `lines` lines as a terminal would show them, oldest first, in at most TAIL_BYTES."""
    return "\n".join(_fitting(_newest(log, lines), TAIL_BYTES))


def _newest(log: str, lines: int) -> list[str]:
    recent: list[str] = []
    for raw in reversed(log[-EVIDENCE_CHARACTERS:].split("\n")):
        if len(recent) >= lines:
            break
        line = _readable(raw)
        if line:
            recent.append(line)
    return recent[::-1]


def _fitting(lines: list[str], max_bytes: int) -> list[str]:
    fitting: list[str] = []
    for line in reversed(lines):
        max_bytes -= len(line.encode()) + 1
        if max_bytes < 0:
            break
        fitting.append(line)
    return fitting[::-1]


def _readable(raw: str) -> str:
    """One terminal line as a reader would see it in the end."""
    state = next((part for part in reversed(raw.split("\r")) if part.strip()), "")
    return without_controls(state[: 4 * LONGEST_LINE]).rstrip()[:LONGEST_LINE]


DIRECTION_WORDS: Mapping[Direction, frozenset[str]] = {
    "minimize": frozenset({"loss", "bpb", "perplexity", "error", "mse", "mae", "rmse", "wer", "fid"}),
    "maximize": frozenset(
        {"acc", "accuracy", "auc", "f1", "bleu", "rouge", "r2", "iou", "map", "reward", "score"}
    ),
}


def direction_of(metric: str) -> Direction:
    """The direction that a metric's name implies. Raises Invalid: no word of it is known, or two disagree."""
    words = named_words(metric)
    found: list[Direction] = [direction for direction, known in DIRECTION_WORDS.items() if words & known]
    if len(found) == 1:
        return found[0]
    why = (
        f"its words {' and '.join(sorted(words & set().union(*DIRECTION_WORDS.values())))} disagree"
        if found
        else "no word of its name is known"
    )
    raise Invalid(
        f"it is not said whether a lower or a higher {metric} is better, and {why}",
        hint='send its direction, "minimize" or "maximize"',
    )


def named_words(metric: str) -> frozenset[str]:
    return frozenset(re.split(r"[_\-./@ ]+", metric.lower()))


def is_known(metric: str) -> bool:
    """Whether a word of this name is that of a metric."""
    return any(named_words(metric) & known for known in DIRECTION_WORDS.values())
