"""Reads a script's score from its output: the metrics block, or else the last line with the metric."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from functions.formats.metrics_block import LONGEST_LINE, MEASURES, is_known, named_number, newest_lines
from functions.formats.said_number import NUMBER, Columns, Name, readable

MOST_METRICS = 256
"""Of a block."""
LONGEST_SAID = 16 * 1024
"""Bytes of a line that are looked at; of a longer one the last ones, where an open progress bar ends."""
MOST_NEAR = 3


@dataclass(frozen=True)
class Printed:
    """The metric in a script's output."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    """By names in lower case: the last block that has the metric, or else the last line of the metric and of each
    known measurement. They may be NaN or infinite."""
    plain: float | None = None
    """The number in the last line that is nothing but `<metric>: NUMBER`."""
    block: Mapping[str, float] | None = None
    """The metrics after the last line `---`; None without such a line."""
    near: tuple[str, ...] = ()
    """The last lines that name the metric and could not be read."""


class PrintedScore:
    """Finds the score in a script's output, however it is cut into pieces.

    A line is read where the metric's name stands on it with one number of its own, whatever decorates them: the
    prefix of a log, quotes, a table. The last such line counts. A progress bar counts where no other line names the
    metric: a bar that is still open is drawn once more when the script ends.
    """

    def __init__(self, metric: str) -> None:
        self._metric = metric.lower()
        names = list(dict.fromkeys((self._metric, *MEASURES)))
        self._needles = [name.encode() for name in names]
        self._plain_lines = re.compile(
            rb"(?:\A|(?<=[\r\n]))[ \t]*%s[ \t]*:[^\r\n]{0,%d}(?=[\r\n]|\Z)"
            % (re.escape(self._metric.encode()), LONGEST_LINE),
            re.IGNORECASE,
        )
        self._plain: float | None = None
        self._blocks = _Blocks(self._metric)
        self._lines = _Lines(self._metric, names)
        self._begun = b""
        """The end of the line that has not ended."""

    def feed(self, data: bytes) -> None:
        """Read the next piece of the output."""
        if not self._metric:
            return
        ended = max(data.rfind(b"\n"), data.rfind(b"\r"))
        if ended < 0:
            self._begun = (self._begun + data)[-LONGEST_SAID:]
            return
        self._read(self._begun + data[:ended])
        self._begun = data[ended + 1 :][-LONGEST_SAID:]

    @property
    def is_whole(self) -> bool:
        """Whether a block has the metric, and no line behind its `---` says that the run goes on or has failed.

        A block that names its epoch or step is one of many.
        """
        return self._blocks.is_whole

    def result(self) -> Printed:
        """What the output says; its last line need not have ended."""
        if not self._metric:
            return Printed()
        self._read(self._begun)
        self._begun = b""
        metrics = self._blocks.chosen
        if self._metric not in metrics and self._metric in (said := self._lines.said()):
            metrics = said | metrics
        last = self._blocks.last
        return Printed(metrics, self._plain, last.metrics if last else None, self._lines.near())

    def _read(self, text: bytes) -> None:
        """Read whole lines; most have no name on them, and are passed over at the speed of a search."""
        text = _BAR_END.sub(rb"\g<0>\n", text)
        lower = text.lower()
        has_names = any(needle in lower for needle in self._needles)
        is_of_blocks = (
            b"---" in text or self._blocks.room > 0 or (has_names and self._blocks.last is not None)
        )
        is_of_lines = has_names or self._lines.columns is not None
        if not (is_of_blocks or is_of_lines):
            return
        lines = [line[-LONGEST_SAID:] for line in _LINE_END.split(text)]
        if is_of_blocks:
            self._blocks.read(lines)
        if is_of_lines:
            self._lines.read(lines)
        for line in reversed(self._plain_lines.findall(text)):
            if (found := named_number(line.decode("utf-8", "replace"), self._metric)) is not None:
                self._plain = found[1]
                break


@dataclass
class _Block:
    """The lines behind one `---`."""

    metrics: dict[str, float] = field(default_factory=dict)
    goes_on: bool = False
    """Whether a line names an epoch or a step, or is a traceback."""


class _Blocks:
    """The metrics behind lines `---`: the published contract."""

    def __init__(self, metric: str) -> None:
        self.last: _Block | None = None
        self.room = 0
        """Bytes behind the last `---` in which any name is a metric; further on only the tag's own is."""
        self._metric = metric
        self._needle = metric.encode()
        self._closed = _Block()
        """The last one with the metric that a further line `---` has closed."""

    @property
    def chosen(self) -> dict[str, float]:
        """The last block that has the metric, or else the last one."""
        return self._chosen.metrics

    @property
    def is_whole(self) -> bool:
        blocks = [self._chosen, self.last or self._closed]
        value = self.chosen.get(self._metric, math.nan)
        return math.isfinite(value) and self.room > 0 and not any(block.goes_on for block in blocks)

    @property
    def _chosen(self) -> _Block:
        last = self.last or _Block()
        return last if self._metric in last.metrics or not self._closed.metrics else self._closed

    def read(self, lines: Iterable[bytes]) -> None:
        """Read whole lines, which follow those before."""
        for raw in lines:
            if _MARKER.fullmatch(raw):
                if self.last is not None and self._metric in self.last.metrics:
                    self._closed = self.last
                self.last, self.room = _Block(), MOST_METRICS * LONGEST_LINE
            elif self.last is not None:
                if self.room > 0 or self._needle in raw.lower():
                    self._take(raw, self.last.metrics)
                    self.last.goes_on = self.last.goes_on or _GOES_ON.search(raw) is not None
                self.room -= len(raw) + 1

    def _take(self, raw: bytes, block: dict[str, float]) -> None:
        if b":" not in raw or len(raw) > LONGEST_LINE:
            return
        found = named_number(readable(raw), self._metric)
        if found is not None and (found[0] in block or len(block) < MOST_METRICS):
            block[found[0]] = found[1]


@dataclass
class _Seen:
    """What was seen of the newest lines, read from their end."""

    missing: set[str]
    """Names of which no number was found."""
    near: list[str] = field(default_factory=list)
    qualified: dict[str, float] = field(default_factory=dict)
    in_bars: dict[str, float] = field(default_factory=dict)


class _Lines:
    """The last number of each name, wherever it stands. Lines are read from the end: older ones cost little."""

    def __init__(self, metric: str, names: Sequence[str]) -> None:
        self.columns: Columns | None = None
        """Of the table that was begun last."""
        self._metric = metric
        self._names = {name: Name(name) for name in names}
        self._said: dict[str, float] = {}
        self._qualified: dict[str, float] = {}
        """Values of the metric behind a word such as `test`, by that word."""
        self._in_bars: dict[str, float] = {}
        """The last number of each name in a progress bar."""
        self._near: deque[str] = deque(maxlen=MOST_NEAR)

    def said(self) -> dict[str, float]:
        """The last number of each name, a bar's where no other line has one.

        A qualified number counts where it is the only kind that was printed.
        """
        said = self._in_bars | self._said
        if self._metric not in self._said and self._qualified:
            said.pop(self._metric, None)
            if len(self._qualified) == 1:
                said[self._metric] = next(iter(self._qualified.values()))
        return said

    def near(self) -> tuple[str, ...]:
        """The last lines that have the metric's name and a number, and are in doubt."""
        return tuple(dict.fromkeys(self._near))

    def read(self, lines: Sequence[bytes]) -> None:
        """Read whole lines, which follow those before."""
        named = ((number, Columns.of(self._names[self._metric], raw)) for number, raw in enumerate(lines))
        tables = [(0, self.columns), *((number, columns) for number, columns in named if columns is not None)]
        seen, end = _Seen(set(self._names)), len(lines)
        for begin, self.columns in reversed(tables):
            for raw in reversed(lines[begin:end]):
                self._read_line(raw, seen)
            end = begin
        self.columns = tables[-1][1]
        self._near.extend(reversed(seen.near))
        for qualifier, value in seen.qualified.items():
            if qualifier in self._qualified or len(self._qualified) < 2:  # two are as much in doubt as more
                self._qualified[qualifier] = value
        self._in_bars |= seen.in_bars

    def _read_line(self, raw: bytes, seen: _Seen) -> None:
        lower = raw.lower()
        named = [name for name in seen.missing if self._names[name].needle in lower]
        if named and _BAR.search(raw):
            self._read_bar(raw, named, seen)
            return
        text = readable(raw) if named else ""
        for name in named:
            readings = self._names[name].readings(text)
            own = {value for qualifier, value in readings if qualifier is None}
            if len(own) == 1:
                self._found(name, own.pop(), seen)
            elif name == self._metric:
                if (
                    len(seen.near) < MOST_NEAR
                    and re.search("[0-9]", text)
                    and self._names[name].stands_in(text)
                ):
                    seen.near.append(text if len(text) <= 120 else f"{text[:117]}...")
                for qualifier, value in readings:
                    if qualifier is not None and not own:
                        seen.qualified.setdefault(qualifier, value)
        if not named and self.columns is not None and self._metric in seen.missing:
            in_row = self.columns.value(raw)
            if in_row is not None:
                self._found(self._metric, in_row, seen)

    def _read_bar(self, raw: bytes, named: Sequence[str], seen: _Seen) -> None:
        text = ""
        for name in named:
            if name not in seen.in_bars:
                text = text or readable(raw)
                own = {value for qualifier, value in self._names[name].readings(text) if qualifier is None}
                if len(own) == 1:
                    seen.in_bars[name] = own.pop()

    def _found(self, name: str, value: float, seen: _Seen) -> None:
        self._said[name] = value
        seen.missing.remove(name)


def nearest(printed: Printed, metric: str, log: str) -> str:
    """The end of the reason of a run without a score: the nearest lines, and the form that is read."""
    if printed.near:
        quoted = ", ".join(f"`{line}`" for line in printed.near)
        return (
            f"; nearest: {quoted}, where the number is in doubt: print the metric and one number on a line, or open"
            " a tag with the name as it is printed"
        )
    names: dict[str, str] = {}
    for line in newest_lines(log, _MOST_LINES).splitlines():
        for found in _NAMED.finditer(line):
            name, text = (_LEVEL.sub("", found[part]) for part in ("name", 0))
            if name.lower() not in MEASURES:
                names[name.lower()] = text
    likely = [text for name, text in names.items() if is_known(name)] or list(names.values())
    if not likely:
        return ""
    return (
        f"; it printed {', '.join(f'`{text}`' for text in likely[-MOST_NEAR:])}: open a tag with that metric"
    )


# -- lines

_MOST_LINES = 200
_NAMED = re.compile(
    r"(?<![\w./@-])(?P<name>[a-z][a-z0-9_./@-]{0,40}(?: [a-z0-9_./@-]{1,40}){0,2})[\"']?\s{0,9}"
    rf"[:=]\s{{0,9}}{NUMBER}%?(?![\w:/-])",
    re.ASCII | re.IGNORECASE,
)
"""Any name with a number."""
_LEVEL = re.compile(r"\A(?:(?:CRITICAL|DEBUG|ERROR|FATAL|INFO|NOTICE|TRACE|WARN|WARNING) )+(?=[A-Za-z])")
"""Words of a logger before a name."""
_LINE_END = re.compile(
    rb"[\r\n\b\x0b\x0c]"
    rb"|\x1b\[[0-9;]{0,20}[A-HJKf]"  # a terminal writes what follows elsewhere
)
_BAR_CLOCK = rb"\[(?:[0-9]{1,4}:)?[0-9]{2}:[0-9]{2}(?:<|, )"
_BAR_END = re.compile(_BAR_CLOCK + rb"(?:[^\[\]\r\n]|\[[^\[\]\r\n]{0,200}\]){0,1000}\](?=[^\r\n])")
"""The end of tqdm's bar, `[00:01<00:02, 9.5it/s, loss=0.5]`, where more text stands behind it."""
_BAR = re.compile(rb"[0-9]%\|(?:\x1b\[[0-9;]{0,20}m|[^|a-zA-Z.,:=\x1b]){0,999}\||" + _BAR_CLOCK)
"""A progress bar, `60%|###  | 3/5 [00:01<00:02]`, or one without its share of a whole."""
_MARKER = re.compile(rb"[ \t]*---[ \t]*")
_GOES_ON = re.compile(
    rb"\b(?:epoch|iter(?:ation)?|round|step)\b\W{0,9}[0-9]|^Traceback \(most recent", re.IGNORECASE
)
