"""Reads a metric's number from one line with any decoration, if no other number can be meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from functions.formats.metrics_block import LONGEST_LINE, without_controls

_CONTEXT = 400
"""Characters on each side of a name that decide what its number is."""
_MOST_NAMED = 20
"""Times that a line may have the name."""
_PUNCTUATION = str.maketrans("：＝−–，；％’‘“”", ":=--,;%''\"\"")


def readable(raw: bytes) -> str:
    """A line without what a terminal does not show, and with ASCII's punctuation."""
    return without_controls(raw.decode("utf-8", "replace")).translate(_PUNCTUATION).strip()


_DIGITS = r"[0-9]{1,60}"
NUMBER = (
    rf"[+-]?(?:[0-9]{{1,3}}(?:,[0-9]{{3}}){{1,6}}\.{_DIGITS}|{_DIGITS}(?:\.[0-9]{{0,60}})?|\.{_DIGITS})"
    r"(?:e[+-]?[0-9]{1,4})?"
)
_NO_NUMBER = r"[+-]?(?:nan|inf(?:inity)?)(?![a-z0-9_])"
_QUOTES = "[\"'`*]{0,4}"
_FLAGS = re.ASCII | re.IGNORECASE

_VALUE = re.compile(
    r"(?:[\"'`*)\]]{0,4}|>(?=\s{0,9}[:=]))"
    r"(?P<aside>\s{0,9}[(\[][^()\[\]]{0,40}[)\]](?=\s{0,9}[:=|]))?"  # (lower is better)
    rf"{_QUOTES}"
    r"(?P<where>\s{1,9}(?:at|after|on)\s[^,;|:=]{1,40}(?=[:=]))?"  # at step 10
    r"(?:\s{0,80}(?:\.{2,80}\s{0,9}[:=]?|=>|->|→|[:=,;|│┃]|(?<=\s)(?:is|of)(?=\s))\s{0,80}|\s{1,80})"
    r"(?:[\"']?value[\"']?\s{0,9}[:=]\s{0,9})?"  # {"name": "val_bpb", "value": 0.9}
    r"(?:[a-z_][a-z0-9_.]{0,30}\(|[\[(\"'`*]){0,4}\s{0,3}"  # tensor(0.9)
    rf"(?P<number>{NUMBER}|{_NO_NUMBER})",
    _FLAGS,
)
_UNIT = re.compile(r"\s?%|(?![kmgtb](?![a-z]))[a-zµμ°]{1,12}(?:/[a-z]{1,12})?(?![a-z0-9_])", re.IGNORECASE)
_FRACTION = re.compile(r"/([0-9]{1,15}) ?\(([0-9]{1,3}(?:\.[0-9]{0,9})?) ?%\)")
"""A count of a whole, and the percentage that it is: `9910/10000 (99%)`."""
_SPREAD = re.compile(rf"[\s(\[]{{0,4}}(?:±|\+/-|\+-)\s?{NUMBER}%?[)\]]?", _FLAGS)
_RUNS_ON = re.compile(r"[0-9a-z_]|[.,:/^+*-][0-9]", _FLAGS)
"""Behind a number: it goes on, as a version, a date, a range, a fraction or a decimal comma does."""
_SECOND = re.compile(
    r"(?:[\s\-~:/+,;|│┃<>()\[\]{}\"'`*→]|=>|\.\.|(?<![a-z])(?:vs\.?|to|of|from|and|or|avg|mean)(?![a-z])){1,80}"
    rf"{NUMBER}(?![0-9.]|\s?%|\s?[a-z]|[:/-][0-9]|\s?[:=])",
    _FLAGS,
)
"""Another number behind the first that nothing names: nobody can tell which of the two is meant."""

_NEVER = (
    *("target", "goal", "baseline", "threshold", "previous", "prev"),
    *("args", "argv", "config", "hparams", "hyperparameters", "namespace", "usage"),
)
_OTHERS = re.compile(rf"(?<![\w./])(?:{'|'.join(_NEVER)})(?![\w./])", re.IGNORECASE)
"""Words before a number that was not measured by this run."""
_OTHER_BEHIND = re.compile(
    rf"\W{{0,4}}(?:is\s)?(?:the\s|our\s)?(?:{'|'.join(_NEVER)})\b(?!\W{{0,4}}[+-]?\.?[0-9])", re.IGNORECASE
)
_BEST = re.compile(r"(?<![\w./])(?<!new )best(?![\w./])", re.IGNORECASE)
_PAIR = re.compile(rf"[a-z_][\w./@-]{{0,60}}[\"']?\s{{0,3}}[:=]?\s{{0,3}}[\"']?{NUMBER}", re.IGNORECASE)
"""A name with a number of its own."""
_WORD_BEFORE = re.compile(r"([A-Za-z_]{1,40})(?P<gap>[\s\[\](){}:|/>-]{1,6})\Z")
_SPLITS = frozenset({"dev", "eval", "evaluation", "test", "train", "training", "val", "valid", "validation"})
_STATISTICS = frozenset(
    (
        *("average", "avg", "delta", "ema", "expected", "initial", "mean", "median", "old", "random"),
        *("relative", "highest", "lowest", "max", "maximum", "min", "minimum", "required", "running"),
        *("smoothed", "std", "worst"),
    )
)
_SAYS_NOTHING = frozenset(
    (
        *("a", "and", "achieved", "current", "final", "got", "has", "last", "our", "overall", "the", "with"),
        *("critical", "debug", "error", "info", "log", "notice", "root", "trace", "warning"),
        *("metric", "metrics", "result", "results", "score", "scores", "summary"),
    )
)
"""Words before a metric that leave it what it is."""


class Name:
    """One name, and how a line may say its number."""

    def __init__(self, name: str) -> None:
        self.text = name
        self.needle = name.encode()
        self._pattern = re.compile(re.escape(name), re.IGNORECASE)
        words = re.split(r"[^a-z0-9]+", name)
        self._is_one_word = len(words) == 1
        self._has_split = bool(_SPLITS & set(words))

    def readings(self, text: str) -> list[tuple[str | None, float]]:
        """The numbers that a line gives for the name, each with the word that qualifies it."""
        found: list[tuple[str | None, float]] = []
        begin = 0
        if text.lower().count(self.text) > _MOST_NAMED:
            return []
        for place in self._places(text):
            before = text[max(begin, place.start() - _CONTEXT) : place.start()]
            behind = text[place.end() : place.end() + _CONTEXT]
            begin = place.end()
            value = _VALUE.match(behind)
            if value is None or _is_other(before, value):
                continue
            number = _number(value["number"], behind[value.end() :])
            if number is None:
                return []  # one of its numbers has no clear end, so the line is not clear
            found.append((self._qualifier(before, value["aside"] or ""), number))
        return found

    def stands_in(self, text: str) -> bool:
        """Whether a line may mean the name, and not a longer one such as `name_best` or `final/name`."""
        return any(
            not _GOES_ON.match(text, place.end()) and text[place.start() - 1 : place.start()] not in _JOINS
            for place in self._pattern.finditer(text)
        )

    def _places(self, text: str) -> Iterator[re.Match[str]]:
        """Where the name stands whole, not as part of a longer one or of a path."""
        for place in self._pattern.finditer(text):
            before = text[max(0, place.start() - 40) : place.start()]
            if not _CUT_OFF.search(before) and not _GOES_ON.match(text, place.end()):
                yield place

    def _qualifier(self, before: str, aside: str) -> str | None:
        """The word that makes a number another quantity than the bare name's; None without one."""
        if _BEST.search(_PAIR.sub("", f"{before} {aside}")):
            return "best"
        for word in re.findall("[a-z]+", aside.lower()):
            if word in _STATISTICS or word in _SPLITS:
                return str(word)
        found = _WORD_BEFORE.search(before)
        if found is None:
            return None
        word, is_adjacent = found[1].lower(), not found["gap"].strip()
        if word in _SPLITS:
            return None if self._has_split else word
        if word in _STATISTICS or (self._is_one_word and word not in _SAYS_NOTHING):
            return word if is_adjacent else None
        return None


_CUT_OFF = re.compile(
    r"(?:(?<![0-9.])[A-Za-z_]|[A-Za-z_][0-9.]*|(?<!\.)\.|[@/$\\]|(?<![\s-])-|--|(?:^|\s)-)\Z"
)
"""Before a name: it is the end of a longer name, of a path, or an option of a command line."""
_JOINS = frozenset("_./@")
_GOES_ON = re.compile(r"[A-Za-z0-9_]|[./@-][A-Za-z0-9_]|\[[0-9]")


def _is_other(before: str, value: re.Match[str]) -> bool:
    words = _PAIR.sub("", f"{before} {value['aside'] or ''} {value['where'] or ''}")
    return _OTHERS.search(words) is not None


def _number(digits: str, behind: str) -> float | None:
    """The number, a percentage as a share of 1; None where the text behind it puts it in doubt."""
    if (fraction := _FRACTION.match(behind)) is not None:
        share, percent = float(digits) / max(1, int(fraction[1])), float(fraction[2])
        return share if abs(100 * share - percent) <= 1 else None
    unit = _UNIT.match(behind)
    is_percent = unit is not None and unit[0].strip() == "%"
    if unit is not None:
        behind = behind[unit.end() :]
    if _RUNS_ON.match(behind):
        return None
    behind = _SPREAD.sub("", behind, count=1) if _SPREAD.match(behind) else behind
    if _SECOND.match(behind) or _OTHER_BEHIND.match(behind):
        return None
    value = float(digits.replace(",", ""))
    return value / 100 if is_percent else value


# -- tables

_CELL_NUMBER = re.compile(rb"(?:\A|[\s,;|:=])[\"']?[+-]?\.?[0-9]")
_CELLS = re.compile(r"\s*[,;|│┃\t]\s*|\s{2,}")


@dataclass(frozen=True)
class Columns:
    """A line of names, one of which is the metric: the lines below it that have as many cells are its rows."""

    place: int
    count: int

    @classmethod
    def of(cls, metric: Name, raw: bytes) -> Columns | None:
        """Those that a line names; None where it is no such line."""
        if len(raw) > LONGEST_LINE or metric.needle not in raw.lower() or _CELL_NUMBER.search(raw):
            return None
        cells = [cell.lower() for cell in _cells(readable(raw))]
        if len(cells) < 2 or cells.count(metric.text) != 1:
            return None
        return cls(cells.index(metric.text), len(cells))

    def value(self, raw: bytes) -> float | None:
        """The metric's number in a row; None for other lines."""
        if len(raw) > LONGEST_LINE:
            return None
        cells = _cells(readable(raw))
        if len(cells) != self.count or 2 * sum(_cell_value(cell) is not None for cell in cells) < self.count:
            return None
        return _cell_value(cells[self.place])


def _cells(text: str) -> list[str]:
    return [cell.strip(" \"'") for cell in _CELLS.split(text.strip("|│┃ "))]


def _cell_value(cell: str) -> float | None:
    found = re.fullmatch(rf"({NUMBER}|{_NO_NUMBER})(%?)", cell, _FLAGS)
    if found is None:
        return None
    value = float(found[1].replace(",", ""))
    return value / 100 if found[2] else value
