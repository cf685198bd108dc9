"""Reads the logs of results that agents keep: every line becomes a row, or is skipped with a reason.

They are tables with tabs, commas, semicolons or bars between the cells, or JSON, one object a line or in a list.
"""

from __future__ import annotations

import codecs
import csv
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from functions.experiments.rules.verdict import LARGEST
from functions.formats.metrics_block import is_known
from state.errors import Invalid

LogOutcome = Literal["keep", "discard", "crash", "none"]
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
WORDS: dict[LogOutcome, tuple[str, ...]] = {
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
OUTCOMES: dict[str, LogOutcome] = {word: outcome for outcome, words in WORDS.items() for word in words}
SEPARATORS = ("\t", ",", ";", "|")
NO_VALUES = frozenset(
    (
        *("attempt", "batch", "best", "budget", "date", "delta", "depth", "diff", "duration", "epoch"),
        *("epochs", "gpu", "hours", "id", "iter", "iteration", "lines", "lr", "mem", "memory"),
        *("minutes", "n", "no", "number", "params", "previous", "rank", "round", "run", "sec", "secs"),
        *("seconds", "seed", "size", "std", "step", "steps", "time", "timestamp", "tokens", "trial"),
        *("vram", "train", "training", "index", "experiment", "exp"),
    )
)
"""Words in the names of columns that hold other numbers than a run's result."""
_DEEPEST = 4
"""Objects within objects whose numbers are columns."""
MOST_SHOWN = 1000
"""Characters of a message that quotes a file."""
NOTHING = frozenset({"", "-", "--", "n/a", "na", "none", "null", "?", "nan", "inf", "-inf", "+inf"})
"""Cells that stand for no value."""
SHA = re.compile(r"[0-9a-f]{7,40}", re.IGNORECASE)


@dataclass(frozen=True)
class LogRow:
    line: int
    """Counted from 1."""
    commit: str | None
    """None where the log has no commit that git would know: `baseline`, `-`, a running number."""
    value: float | None
    """None for nan, infinity and zero, which logs write for runs without a result."""
    step: float | None
    """One unit in the last printed digit of the value."""
    outcome: LogOutcome
    """The log's verdict as one of our words; never computed from the values."""
    said: str
    """The log's own word for it."""
    description: str
    config: str | None = None
    """Its configuration as the log has it: a hash, or the settings themselves."""
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
    """Whether any status means keep or discard; if not, every row ran or crashed."""
    rows: list[LogRow] = field(default_factory=list)
    skipped: list[Remark] = field(default_factory=list)
    notes: list[Remark] = field(default_factory=list)
    """Rows that were not read literally."""

    @property
    def resolution(self) -> float | None:
        """The finest step that its values are printed with."""
        return min((row.step for row in self.rows if row.step is not None), default=None)


@dataclass(frozen=True)
class _Line:
    """A line of a log; in quotes it may go on over several."""

    number: int
    text: str
    cells: list[str]
    fault: str | None = None
    """Why it can be no row."""


@dataclass(frozen=True)
class _Table:
    names: Sequence[str]
    """Of the columns."""
    lines: list[_Line]
    start: int = 0
    """The number of the line that names the columns; 0 without one."""
    separator: str = "\t"


def read_log(raw: bytes, metric: str | None = None) -> ResultsLog:
    """The runs of a log; `metric` names the column of values. Raises Invalid: no or several such columns."""
    text = decoded(raw)
    table = _json_table(text) or _table(text, metric)
    if _place(table.names, [metric] if metric else COLUMNS["status"]) is None:
        raise _no_header([table.names], metric)
    rows = [line for line in table.lines if line.number > table.start and line.cells and line.fault is None]
    header = _Header(table, metric or _value_column(table.names, rows))
    log = ResultsLog(header.metric, header.has_verdicts(rows))
    first_seen: dict[str, int] = {}
    for line in table.lines:
        if not line.text.strip() or line.number == table.start:
            continue
        if reason := _no_row(line, table.start, header, first_seen):
            log.skipped.append(Remark(line.number, reason, line.text))
        else:
            first_seen[line.text] = line.number
            _read_row(header, line, log)
    return log


def _no_row(line: _Line, start: int, header: _Header, first_seen: Mapping[str, int]) -> str | None:
    """Why a line is no row of the log."""
    if line.number < start:
        return "it stands above the header"
    if line.fault is not None:
        return line.fault
    if line.text.startswith("#"):
        return "it is a title or a comment"
    if start and _names(line.cells) == header.names:
        return "it is the header again"
    if line.text in first_seen and header.names_its_run(line.cells):
        return f"it is line {first_seen[line.text]} again"
    return None


def _table(text: str, metric: str | None) -> _Table:
    """A table by its separator: the first with which a line names its columns. Raises Invalid: none does."""
    tables = {separator: _lines(text, separator) for separator in SEPARATORS if separator in text}
    for separator, lines in tables.items():
        found = _header_line(lines, metric)
        if found is not None:
            return _Table(_names(found.cells), lines, found.number, separator)
    lines = tables.get("\t", [])
    if metric is None and any(_is_published(line.cells) for line in lines):
        return _Table(PUBLISHED, lines)
    raise _no_header([line.cells for lines in tables.values() for line in lines], metric)


def _lines(text: str, separator: str) -> list[_Line]:
    """The lines of a text, which end in LF, in CR LF, or all in CR."""
    plain = text.split("\n") if "\n" in text else text.split("\r")
    plain = [line.removesuffix("\r") for line in plain]
    if separator == "\t":
        return [_Line(number, line, line.split("\t")) for number, line in enumerate(plain, start=1)]
    if separator == "|":
        return [_bar_line(number, line) for number, line in enumerate(plain, start=1)]
    return _quoted_lines(plain, separator)


def _bar_line(number: int, text: str) -> _Line:
    cells = [cell.strip().strip("`*") for cell in text.strip().strip("|").split("|")]
    is_rule = all(re.fullmatch(":?-+:?", cell) for cell in cells)
    return _Line(number, text, cells, "it is a rule of the table" if is_rule else None)


def _quoted_lines(plain: Sequence[str], separator: str) -> list[_Line]:
    found: list[_Line] = []
    begin = 0
    reader = csv.reader((f"{line}\n" for line in plain), delimiter=separator, skipinitialspace=True)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return found
        except csv.Error:  # a cell that is longer than the reader takes
            cells = []
        text = "\n".join(plain[begin : reader.line_num])
        fault = None if cells or not text.strip() else "it cannot be read as a row"
        found.append(_Line(begin + 1, text, cells, fault))
        begin = reader.line_num


def _json_table(text: str) -> _Table | None:
    """A list of objects, or one a line; None for anything else."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    whole = _loaded(text)
    if isinstance(whole, list):
        given = [(number, json.dumps(item), item) for number, item in enumerate(whole, start=1)]
    else:
        given = [(number, line, _loaded(line)) for number, line in enumerate(text.splitlines(), start=1)]
    objects = {number: _flat(item) for number, _, item in given if isinstance(item, dict)}
    if not objects:
        return None
    names = list(dict.fromkeys(name for item in objects.values() for name in item))
    lines = [
        _Line(number, line, [objects[number].get(name, "") for name in names])
        if number in objects
        else _Line(number, line, [], "it is no JSON object")
        for number, line, _ in given
    ]
    return _Table(names, lines)


def _loaded(text: str) -> object:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


def _flat(item: Mapping[str, object], depth: int = 0) -> dict[str, str]:
    """The cells of an object. Cells of nested objects keep their own names if these are free."""
    cells: dict[str, str] = {}
    for name, value in item.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            cells |= {
                inner: cell for inner, cell in _flat(value, depth + 1).items() if _name(inner) not in cells
            }
        else:
            cells[_name(name)] = (
                "" if value is None else value if isinstance(value, str) else json.dumps(value)
            )
    return cells


def _header_line(lines: Sequence[_Line], metric: str | None) -> _Line | None:
    """The header line. Without a column of statuses only the caller can know it, by `metric`."""
    named = [(line, names) for line in lines if len(names := _names(line.cells)) > 1]
    if metric is not None:
        named = [(line, names) for line, names in named if _place(names, [metric]) is not None]
    with_status = [line for line, names in named if _place(names, COLUMNS["status"]) is not None]
    with_status = [line for line in with_status if not any(map(_is_number, line.cells))]
    if with_status or metric is None:
        return with_status[0] if with_status else None
    return named[0][0] if named else None


def _value_column(names: Sequence[str], rows: Sequence[_Line]) -> str:
    """The column of values, judged by its name and cells. Raises Invalid: none does, or several do."""
    if published := [name for name in BITS_PER_BYTE if name in names]:
        return published[0]
    others = {name for what, known in COLUMNS.items() if what != "value" for name in known}
    free = [
        name for name in dict.fromkeys(names) if name not in others and not set(name.split("_")) & NO_VALUES
    ]
    known = [name for name in free if name in COLUMNS["value"] or is_known(name)]
    places = {name: names.index(name) for name in free}
    numeric = [
        name
        for name in known or free
        if any(
            number_in(line.cells[places[name]]) is not None for line in rows if len(line.cells) > places[name]
        )
    ]
    found = (numeric if known else [name for name in numeric if name not in CONFIG]) or known
    if len(found) == 1:
        return found[0]
    if found:
        raise Invalid(
            f"several columns may hold the values: {', '.join(found)}"[:MOST_SHOWN],
            hint="name the one that the statuses follow with --metric",
        )
    raise _no_header([names], None)


def _no_header(lines: Sequence[Sequence[str]], metric: str | None) -> Invalid:
    """Error that names the columns of the first line with several cells."""
    columns = next(
        (_names(cells) for cells in lines if len(cells) > 1 and not cells[0].startswith("#")), None
    )
    message = f"no line names a column of {metric or 'values'} and one of statuses"
    if columns is None:
        return Invalid(
            message,
            hint="a header like 'commit val_bpb memory_gb status description' is looked for, separated by tabs,"
            " commas, semicolons or bars, or JSON with such names",
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

    def __init__(self, table: _Table, metric: str) -> None:
        self.names = tuple(table.names)
        self._separator = table.separator
        self.places = {
            what: place
            for what, known in COLUMNS.items()
            if (place := _place(self.names, (metric,) if what == "value" else known)) is not None
        }
        self.metric = self.names[self.places["value"]]

    def aligned(self, cells: Sequence[str]) -> list[str] | None:
        """The cells, one for each column; None: the row ends before its status."""
        surplus = len(cells) - len(self.names)
        if surplus > 0 and "description" in self.places:
            # Only free text can hold separators.
            at = self.places["description"]
            return [
                *cells[:at],
                self._separator.join(cells[at : at + surplus + 1]),
                *cells[at + surplus + 1 :],
            ]
        if len(cells) <= max(self.places.get("status", 0), self.places["value"]):
            return None
        return [*cells, *[""] * -surplus]

    def cell(self, cells: Sequence[str], what: str) -> str:
        place = self.places.get(what)
        return "" if place is None else cells[place].strip()

    def config(self, cells: Sequence[str]) -> str | None:
        """The row's configuration; None: the log has none."""
        found = [cells[n].strip() for n, name in enumerate(self.names) if name in CONFIG]
        return " ".join(found) if any(cell.lower() not in NOTHING for cell in found) else None

    def has_verdicts(self, rows: Iterable[_Line]) -> bool:
        """Whether a row was kept or discarded, or all are crashes and baselines."""
        if "status" not in self.places:
            return False
        said = [self.cell(cells, "status") for row in rows if (cells := self.aligned(row.cells))]
        words = {_name(word) for word in said if word}
        outcomes = {OUTCOMES.get(word) for word in words - {"baseline"}}
        return bool(outcomes & {"keep", "discard"}) or outcomes <= {"crash"}

    def names_its_run(self, found: Sequence[str]) -> bool:
        """Whether two lines with these cells are the same run: they name its code, not only its result."""
        cells = self.aligned(found)
        return cells is not None and bool(
            self.cell(cells, "commit") or self.cell(cells, "description") or self.config(cells)
        )


def _read_row(header: _Header, line: _Line, log: ResultsLog) -> None:
    number, text = line.number, line.text
    cells = header.aligned(line.cells)
    if cells is None:
        log.skipped.append(Remark(number, "it ends before its value and status", text))
        return
    said = header.cell(cells, "status")
    if not said and "status" in header.places:
        log.skipped.append(Remark(number, "it has no status", text))
        return
    outcome = OUTCOMES.get(_name(said)) if said else "none"
    if outcome is None or (outcome == "none" and log.has_verdicts):
        read = "read as discard" if log.has_verdicts else "it counts as a run without a verdict"
        log.notes.append(Remark(number, f"{said!r} is neither keep, discard nor crash: {read}", text))
        outcome = "discard"
    if not log.has_verdicts and outcome != "crash":
        outcome = "none"
    measured = header.cell(cells, "value")
    value = number_in(measured)
    if value is None and measured.lower() not in NOTHING and not _is_number(measured):
        log.notes.append(Remark(number, f"{measured!r} is no number: read as no value", text))
    if len(cells) > len(header.names):
        beyond = len(cells) - len(header.names)
        log.notes.append(Remark(number, f"{beyond} more cells than columns: left out", text))
    commit = header.cell(cells, "commit")
    log.rows.append(
        LogRow(
            line=number,
            commit=commit if SHA.fullmatch(commit) else None,
            value=value,
            step=None if value is None else _step(measured),
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


def _is_published(cells: Sequence[str]) -> bool:
    """Whether this is a row of a log that has the usual columns and no header."""
    return len(cells) >= len(PUBLISHED) - 1 and _is_number(cells[1]) and _name(cells[3]) in OUTCOMES


def _place(names: Sequence[str], known: Sequence[str | None]) -> int | None:
    wanted = [_name(name) for name in known if name]
    return next((names.index(name) for name in wanted if name in names), None)


def _names(cells: Sequence[str]) -> tuple[str, ...]:
    return tuple(_name(cell) for cell in cells)


def _name(cell: str) -> str:
    """`# Val BPB` is `val_bpb`."""
    return re.sub(r"[\s-]+", "_", cell.strip().strip("#*").strip().lower())
