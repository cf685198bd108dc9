"""What a training log says: its metrics after the last `---` or anywhere, why the run failed, its last lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal

FailureKind = Literal[
    "oom",
    "nan",
    "timeout",
    "import",
    "killed",
    "no_metrics",
    "disk",
    "patch",
    "evaluator",
    "leak",
    "infra",
    "other",
]
"""Why a run has no result; `patch`: it does not apply, `evaluator`: the code changes how it is scored, `leak`: its
predictions use what they must not know."""

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
"""Characters of a line that are looked at; the scripts that write these logs are not trusted to be short."""

MOST_METRICS = 256
LONGEST_NAME = 100
"""Characters of a metric's name: lists show the names of a thousand runs at once."""
EVIDENCE_CHARACTERS = 256 * 1024

_BREAK = re.compile(r"[\r\n]")
_MARKER = re.compile(r"(?:\A|(?<=[\r\n]))[ \t]*---[ \t]*(?=[\r\n]|\Z)")
_METRIC = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_./-]{0,63})\s*:\s*"
    r"([+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf(?:inity)?))\s*",
    re.ASCII | re.IGNORECASE,
)

_NOT_FINITE = re.compile(
    r"(?:loss|grad\w*|val_\w+|perplexity|bpb)\w*\s*(?:[:=]|\bis\b)?\s*(?:became\s+|is\s+)?[+-]?(?:nan|inf(?:inity)?)\b",
    re.IGNORECASE,
)
_GIVEN_UP = re.compile(r"\A(?:step\s+\d+\b.*)?\bFAIL\s*\Z", re.ASCII)
"""How the reference script ends a run whose loss is NaN or explodes: the word alone, or behind a progress line."""
_EVIDENCE: tuple[tuple[FailureKind, re.Pattern[str]], ...] = (
    (
        "infra",
        re.compile(
            r"no CUDA-capable device|CUDA driver version is insufficient|Driver/library version mismatch"
            r"|uncorrectable ECC|CUDA-capable device\(s\) is/are busy|GPU is lost|No CUDA GPUs are available",
            re.IGNORECASE,
        ),
    ),
    (
        "oom",
        re.compile(
            r"CUDA out of memory|OutOfMemoryError|\bMemoryError\b|CUDA_ERROR_OUT_OF_MEMORY"
            r"|CUDA error: out of memory|ALLOC_FAILED|std::bad_alloc|Cannot allocate memory",
            re.IGNORECASE,
        ),
    ),
    ("disk", re.compile(r"No space left on device|Disk quota exceeded|\[Errno 27\]|File too large", re.I)),
    ("import", re.compile(r"\b(?:ModuleNotFoundError|ImportError)\b")),
    ("nan", _NOT_FINITE),
    ("nan", _GIVEN_UP),
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

_KILLED = {-9, -15, 128 + 9, 128 + 15}
"""KILL and TERM as Python and as a shell say it."""


def parse_block(text: str) -> dict[str, float]:
    """Metrics after the last line that is exactly `---`, names in lower case; empty without such a line.

    Lines other than `name: number` are passed over, a name printed twice keeps its last value, and NaN or
    infinity stay as they are, so that the caller can tell a diverged run from one that printed nothing.
    """
    start = -1
    for marker in _MARKER.finditer(text):
        start = marker.end()
    if start < 0:
        return {}
    metrics: dict[str, float] = {}
    for line in _BREAK.split(text[start : start + MOST_METRICS * LONGEST_LINE]):
        if len(line) > LONGEST_LINE or (named := named_number(line)) is None:
            continue
        name, value = named
        if name in metrics or len(metrics) < MOST_METRICS:
            metrics[name] = value
    return metrics


def named_number(text: str) -> tuple[str, float] | None:
    """The name, in lower case, and the number of a text `name: NUMBER`; it may be NaN or infinite."""
    found = _METRIC.fullmatch(text)
    return None if found is None else (found[1].lower(), float(found[2]))


def without_escapes(text: str) -> str:
    """The text without a terminal's escape sequences: colours, cursor movement, titles."""
    return _ESCAPES.sub("", text)


def has_block(text: str) -> bool:
    """Whether a line is exactly `---`: then only what follows the last of these lines counts."""
    return _MARKER.search(text) is not None


def is_metric_name(name: str) -> bool:
    """Whether a number of this name is kept: it is short, and every character of it can be shown."""
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()


def last_value(log: str, metric: str) -> float | None:
    """The number in the last line `<metric>: NUMBER` of a log, in any case; None without one."""
    return last_values(log, (metric,)).get(metric.lower())


def last_values(log: str, names: Iterable[str]) -> dict[str, float]:
    """For each of these names, in lower case, the number in the last line `<name>: NUMBER`, wherever it stands."""
    wanted = "|".join(re.escape(name) for name in names)
    lines = re.compile(
        rf"(?:\A|(?<=[\r\n]))[ \t]*(?:{wanted})[ \t]*:[^\r\n]{{0,{LONGEST_LINE}}}", re.ASCII | re.IGNORECASE
    )
    values: dict[str, float] = {}
    for line in lines.finditer(log):
        is_whole = line.end() == len(log) or log[line.end()] in "\r\n"
        if is_whole and len(line[0]) <= LONGEST_LINE and (named := named_number(line[0])) is not None:
            name, value = named
            values[name] = value
    return values


def classify_failure(
    log: str,
    returncode: int | None,
    *,
    timed_out: bool = False,
    metrics: Mapping[str, float] | None = None,
) -> FailureKind:
    """Why a run that gave no usable metric ended; `metrics` are those it did print.

    A script may survive one error and die of another, so the evidence that stands last in the log decides.
    """
    if timed_out:
        return "timeout"
    if returncode is None:
        return "infra"
    if returncode in _KILLED:
        return "killed"
    printed = parse_block(log) if metrics is None else metrics
    if any(not math.isfinite(value) for value in printed.values()):
        return "nan"
    found = _last_evidence(log)
    if returncode == 0:
        return "nan" if found == "nan" else "no_metrics"
    return found or "other"


def failure_tail(log: str, lines: int = 50, max_bytes: int = 8192) -> str:
    """The last `lines` lines in order, those that speak of an error first, in at most `max_bytes` of UTF-8.

    Escape sequences and control characters are taken out, and of a progress line that was overwritten in
    place only its last state is kept. What does not fit is dropped from the oldest line on, and lines that
    speak of an error are dropped last.
    """
    recent = _newest(log, lines)
    errors = [line for line in recent if _ERROR_LINE.search(line)]
    others = [line for line in recent if not _ERROR_LINE.search(line)]

    shown = _fitting(errors, max_bytes)
    room = max_bytes - sum(len(line.encode()) + 1 for line in shown)
    if len(shown) == len(errors):
        shown += _fitting(others, room)
    return "\n".join(shown)


def deciding_line(error: str, kind: str | None) -> str:
    """The line of a stored error that tells most; "" where it has none.

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


_TOLD_BY_THE_LAB = frozenset({"timeout", "no_metrics"})
"""Kinds of failures of which the script says nothing."""


def newest_lines(log: str, lines: int = 50, max_bytes: int = 8192) -> str:
    """The last `lines` lines as a terminal would show them, oldest first, in at most `max_bytes` of UTF-8."""
    return "\n".join(_fitting(_newest(log, lines), max_bytes))


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
    """The longest end of these lines that fits."""
    fitting: list[str] = []
    for line in reversed(lines):
        max_bytes -= len(line.encode()) + 1
        if max_bytes < 0:
            break
        fitting.append(line)
    return fitting[::-1]


def _last_evidence(log: str) -> FailureKind | None:
    for line in reversed(_BREAK.split(log[-EVIDENCE_CHARACTERS:])):
        short = line[:LONGEST_LINE]
        for kind, pattern in _EVIDENCE:
            if pattern.search(short):
                return kind
    return None


def _readable(raw: str) -> str:
    """One terminal line as a reader would see it in the end."""
    state = next((part for part in reversed(raw.split("\r")) if part.strip()), "")
    return _CONTROL.sub("", without_escapes(state[: 4 * LONGEST_LINE])).rstrip()[:LONGEST_LINE]
