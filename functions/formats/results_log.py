"""Reads a results.tsv as agents really write them: every line becomes a row, or is skipped with a reason."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from functions.rules.keeps.verdict import LARGEST
from state.errors import Invalid

Outcome = Literal["keep", "discard", "crash", "none"]
"""`none`: it ran, and the log says nothing of keep or discard."""

BITS_PER_BYTE = ("val_bpb", "bpb", "best_val_bpb", "final_val_bpb", "validation_bpb", "val/bpb")
"""The names that bits per byte of the validation data go by."""
COLUMNS: dict[str, tuple[str, ...]] = {
    "commit": ("commit", "commit_sha", "commit_hash", "git_commit", "sha", "git_sha", "hash", "revision"),
    "value": (*BITS_PER_BYTE, "value", "metric", "score", "val_loss", "loss", "accuracy", "val_acc"),
    "memory": ("memory_gb", "mem_gb", "peak_memory_gb", "peak_vram_gb", "vram_gb"),
    "status": ("status", "decision", "verdict", "outcome", "action"),
    "description": ("description", "desc", "summary", "change", "idea", "experiment", "hypothesis", "notes"),
}
"""The names that a column goes by, the likeliest first."""
PUBLISHED = ("commit", "val_bpb", "memory_gb", "status", "description")
"""The columns of a log without a header."""
CONFIG = (
    *("config_hash", "config_sha", "config_id", "config", "config_delta", "overrides", "hparams"),
    *("params_hash", "code_hash", "diff_hash", "patch_hash", "tree_hash"),
)
"""Columns that tell one configuration from another: they are part of a run's code."""
HIGHER = frozenset(
    (
        *("acc", "accuracy", "ap", "auc", "auroc", "bleu", "dice", "elo", "em", "f1", "iou", "map", "miou"),
        *("precision", "psnr", "r2", "recall", "return", "reward", "rouge", "score", "ssim", "success"),
        *("top1", "top5", "win", "winrate"),
    )
)
"""Words in the names of metrics that rise as models get better, unless one of LOWER stands beside them."""
LOWER = frozenset(
    (
        *("bpb", "bpc", "ce", "cost", "err", "error", "loss", "mae", "mse", "nll", "perplexity", "ppl"),
        *("regret", "rmse", "wer"),
    )
)

NAMELESS = frozenset({"metric", "result", "val", "value"})
"""Words that tell nothing of a metric."""

WORDS: dict[Outcome, tuple[str, ...]] = {
    "keep": ("keep", "kept", "keep_commit", "accept", "accepted", "baseline", "best", "improved", "merged"),
    "discard": (
        *("discard", "discarded", "drop", "dropped", "git_reset", "no_improvement", "reject", "rejected"),
        *("revert", "reverted", "rollback", "rolled_back", "stopped", "worse"),
    ),
    "crash": (
        *("crash", "crashed", "error", "fail", "failed", "infra", "infra_error", "infra_retry", "invalid"),
        *("killed", "lost", "nan", "oom", "timed_out", "timeout"),
    ),
    "none": (
        *("complete", "completed", "done", "finished", "ok", "okay", "pass", "passed"),
        *("ran", "succeeded", "success", "successful"),
    ),
}
OUTCOMES: dict[str, Outcome] = {word: outcome for outcome, words in WORDS.items() for word in words}
MOST_SHOWN = 1000
"""Characters of a message that quotes a file."""
NOTHING = frozenset({"", "-", "--", "n/a", "na", "none", "null", "?", "nan", "inf", "-inf", "+inf"})
"""Cells that stand for no value."""
SHA = re.compile(r"[0-9a-f]{7,40}", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """One run of a log."""

    line: int
    """Counted from 1."""
    commit: str | None
    """None where the log has no commit that git would know: `baseline`, `-`, a running number."""
    value: float | None
    """None for nan, infinity and zero, which logs write where nothing was measured, whatever the status."""
    step: float | None
    """One unit in the last printed digit of the value."""
    memory_gb: float | None
    outcome: Outcome
    """What the log says, in our words; it is never computed from the values."""
    said: str
    """The log's own word for it."""
    description: str
    config: str | None = None
    """What the log has to tell its configuration from others by: a hash, or the settings themselves."""
    more: dict[str, str] = field(default_factory=dict)
    """The other columns, by their names in the log."""


@dataclass(frozen=True)
class Remark:
    """A line that is no row, or one that had to be interpreted, and why."""

    line: int
    reason: str
    text: str


@dataclass(frozen=True)
class ResultsLog:
    """All lines of a log: rows, and those that were skipped; empty ones and the header aside."""

    metric: str
    """The column's name that values were taken from."""
    has_verdicts: bool
    """Whether its statuses say keep or discard of anything; where they do not, every row ran or crashed."""
    rows: list[Row] = field(default_factory=list)
    skipped: list[Remark] = field(default_factory=list)
    notes: list[Remark] = field(default_factory=list)
    """Rows that are not what they say word for word."""

    @property
    def resolution(self) -> float | None:
        """The finest step that its values are printed with."""
        return min((row.step for row in self.rows if row.step is not None), default=None)


def read_log(raw: bytes, metric: str | None = None) -> ResultsLog:
    """The runs of a results.tsv; `metric` names the column of values where it has an unusual name, or no verdicts.

    Raises:
        Invalid: no columns of values and statuses can be found, or not the named one.
    """
    lines = _lines(decoded(raw))
    found = _header_line(lines, metric)
    if found is None and metric is None and any(_is_published(line) for line in lines):
        header, start = _Header(PUBLISHED, None), 0
    elif found is None:
        raise _no_header(lines, metric)
    else:
        header, start = _Header(_names(lines[found]), metric), found + 1
    log = ResultsLog(header.metric, header.has_verdicts(lines[start:]))
    first_seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or number == start:
            continue
        if number < start:
            log.skipped.append(Remark(number, "it stands above the header", line))
        elif line.startswith("#"):
            log.skipped.append(Remark(number, "it is a title or a comment", line))
        elif start and _names(line) == header.names:
            log.skipped.append(Remark(number, "it is the header again", line))
        elif line in first_seen and header.names_its_run(line):
            log.skipped.append(Remark(number, f"it is line {first_seen[line]} again", line))
        else:
            first_seen[line] = number
            _read_row(header, number, line, log)
    return log


def may_be_higher(metric: str) -> bool:
    """Whether higher may be better, as far as a metric's name tells: it sounds like an accuracy, or says nothing."""
    words = set(re.split(r"[^a-z0-9]+", _name(metric)))
    return bool(words & HIGHER or words <= NAMELESS) and not words & LOWER


def _lines(text: str) -> list[str]:
    """The lines of a text, which end in LF, in CR LF, or all in CR."""
    if "\n" not in text:
        return text.split("\r")
    return [line.removesuffix("\r") for line in text.split("\n")]


def _header_line(lines: Sequence[str], metric: str | None) -> int | None:
    """Where the columns are named. Without a column of statuses only the caller can tell that a line does that."""
    ones = [n for n, line in enumerate(lines) if _Header.is_one(_cells(line), metric)]
    if not ones and metric is not None:
        ones = [n for n, line in enumerate(lines) if _place(_names(line), [metric]) is not None]
    return ones[0] if ones else None


def _no_header(lines: Sequence[str], metric: str | None) -> Invalid:
    """Says which columns there are, as far as the first line that has several is a header."""
    columns = next((_names(line) for line in lines if "\t" in line and not line.startswith("#")), None)
    message = f"no line names a column of {metric or 'values'} and one of statuses"
    if columns is None:
        return Invalid(
            message,
            hint="a header like 'commit val_bpb memory_gb status description', separated by tabs, is looked for",
        )
    return Invalid(
        f"{message}: its columns are {', '.join(columns)}"[:MOST_SHOWN],
        hint="name the column of values with --metric"
        if _place(columns, COLUMNS["status"]) is not None
        else f"the column of statuses is looked for as {', '.join(COLUMNS['status'])}; a log without one is judged by"
        " its running best if --metric names its column of values",
    )


def decoded(raw: bytes) -> str:
    """The text, whatever its encoding; what is no UTF-8 is shown as U+FFFD."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return raw.decode("utf-16", errors="replace")
    return raw.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors="replace")


class _Header:
    """Which column holds what."""

    def __init__(self, names: Sequence[str], metric: str | None) -> None:
        self.names = tuple(names)
        self.places = {
            what: place
            for what, known in COLUMNS.items()
            if (place := _place(self.names, (metric,) if what == "value" and metric else known)) is not None
        }
        self.metric = self.names[self.places["value"]]

    @staticmethod
    def is_one(cells: Sequence[str], metric: str | None) -> bool:
        names = [_name(cell) for cell in cells]
        values = (metric,) if metric else COLUMNS["value"]
        return _place(names, values) is not None and _place(names, COLUMNS["status"]) is not None

    def aligned(self, cells: list[str]) -> list[str] | None:
        """As many cells as columns; None where the row ends before its status."""
        surplus = len(cells) - len(self.names)
        if surplus > 0 and "description" in self.places:
            # Only free text can hold tabs.
            at = self.places["description"]
            return [*cells[:at], "\t".join(cells[at : at + surplus + 1]), *cells[at + surplus + 1 :]]
        if len(cells) <= max(self.places.get("status", 0), self.places["value"]):
            return None
        return (cells + [""] * -surplus) if surplus < 0 else cells

    def cell(self, cells: Sequence[str], what: str) -> str:
        place = self.places.get(what)
        return "" if place is None else cells[place].strip()

    def config(self, cells: Sequence[str]) -> str | None:
        """What tells the row's configuration from others; None where the log has nothing of the kind."""
        found = [cells[n].strip() for n, name in enumerate(self.names) if name in CONFIG]
        return " ".join(found) if any(cell.lower() not in NOTHING for cell in found) else None

    def has_verdicts(self, lines: Iterable[str]) -> bool:
        """Whether a row was kept or discarded, or all are crashes and baselines."""
        if "status" not in self.places:
            return False
        said = [self.cell(cells, "status") for line in lines if (cells := self.aligned(_cells(line)))]
        words = {_name(word) for word in said if word}
        outcomes = {OUTCOMES.get(word) for word in words - {"baseline"}}
        return bool(outcomes & {"keep", "discard"}) or outcomes <= {"crash"}

    def names_its_run(self, line: str) -> bool:
        """Whether two such lines are the same run: they say of which code, not only what came of it."""
        cells = self.aligned(_cells(line))
        return cells is not None and bool(
            self.cell(cells, "commit") or self.cell(cells, "description") or self.config(cells)
        )


def _read_row(header: _Header, number: int, line: str, log: ResultsLog) -> None:
    cells = header.aligned(_cells(line))
    if cells is None:
        log.skipped.append(Remark(number, "it ends before its value and status", line))
        return
    said = header.cell(cells, "status")
    if not said and "status" in header.places:
        log.skipped.append(Remark(number, "it has no status", line))
        return
    outcome = OUTCOMES.get(_name(said)) if said else "none"
    if outcome is None or (outcome == "none" and log.has_verdicts):
        read = "read as discard" if log.has_verdicts else "it counts as a run without a verdict"
        log.notes.append(Remark(number, f"{said!r} is neither keep, discard nor crash: {read}", line))
        outcome = "discard"
    if not log.has_verdicts and outcome != "crash":
        outcome = "none"
    measured = header.cell(cells, "value")
    value = number_in(measured)
    if value is None and measured.lower() not in NOTHING and not _is_number(measured):
        log.notes.append(Remark(number, f"{measured!r} is no number: read as no value", line))
    if len(cells) > len(header.names):
        beyond = len(cells) - len(header.names)
        log.notes.append(Remark(number, f"{beyond} more cells than columns: left out", line))
    commit = header.cell(cells, "commit")
    log.rows.append(
        Row(
            line=number,
            commit=commit if SHA.fullmatch(commit) else None,
            value=value,
            step=None if value is None else _step(measured),
            memory_gb=number_in(header.cell(cells, "memory")),
            outcome=outcome,
            said=said,
            description=header.cell(cells, "description"),
            config=header.config(cells),
            more={
                name: cells[place].strip()
                for place, name in enumerate(header.names)
                if place not in header.places.values()
            },
        )
    )


def number_in(cell: str) -> float | None:
    """The number that a cell holds; None for zero and for what no run can have measured."""
    if not _is_number(cell):
        return None
    value = float(cell)
    return value if math.isfinite(value) and 0 < abs(value) <= LARGEST else None


def _step(cell: str) -> float:
    """One unit in the last digit of a printed number."""
    exponent = Decimal(cell).as_tuple().exponent
    return 10.0**exponent if isinstance(exponent, int) else 0.0


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_published(line: str) -> bool:
    """Whether this is a row of a log that has the usual columns and no header."""
    cells = _cells(line)
    return len(cells) >= len(PUBLISHED) - 1 and _is_number(cells[1]) and _name(cells[3]) in OUTCOMES


def _place(names: Sequence[str], known: Sequence[str | None]) -> int | None:
    wanted = [_name(name) for name in known if name]
    return next((names.index(name) for name in wanted if name in names), None)


def _names(line: str) -> tuple[str, ...]:
    return tuple(_name(cell) for cell in _cells(line))


def _cells(line: str) -> list[str]:
    return line.split("\t")


def _name(cell: str) -> str:
    """`# Val BPB` is `val_bpb`."""
    return re.sub(r"[\s-]+", "_", cell.strip().strip("#*").strip().lower())
