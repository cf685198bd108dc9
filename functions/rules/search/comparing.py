"""Replays a record of tries under several rules of the search: what came of those that a rule would have chosen too.

After Li, Chu, Langford and Wang (2011): walk the record in its order, ask each rule at every point, and count the
tries that are of the kind it says. Their method is free of bias where the record chose at random. Agents do not:
so everything is counted twice, each try for one, and each for the inverse of how often its kind was chosen in the
record (self-normalised), which takes out that a rule agrees more often with what agents like to do. What neither
takes out: agents choose a kind where they have a good idea of it, and what a rule learns from is the whole record,
not what would have happened under it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from functions.rules.keeps.noise import LEAST
from functions.rules.keeps.verdict import is_near, score
from functions.rules.search.kinds import NO_CATEGORY, OF_CATEGORY, kept_category, kind_of
from functions.rules.search.strategy import next_strategy
from functions.rules.search.suggestions import least_tried_of
from functions.rules.search.yields import best_category
from state.policy import Adapt
from state.records import Direction, End, Mode

PUBLISHED, YIELDS = "published", "yields"
RULES: Final = {PUBLISHED: Adapt(rule="published"), YIELDS: Adapt(rule="yields")}
"""What is compared, each with its default limits."""
CENTRAL: Final = 0.95
"""The share of the draws that an interval holds."""
AGREED: Final = 10
"""Tries that a rule would have chosen, below which their rates have no interval."""

Rates = tuple[float, float, float, float]
"""Of the tries that a rule would have chosen: keeps and gain per try, and both weighted."""
Interval = tuple[float, float]


@dataclass(frozen=True)
class Try:
    """One recorded try."""

    end: End
    value: float | None


@dataclass(frozen=True)
class Choice:
    """What was tried at one point of the record, what came of it, and what each rule would have had tried."""

    chosen: str
    wanted: Mapping[str, str]
    kept: bool
    gain: float
    """By how much it beat the best of its time; 0 where it was not kept."""
    weight: float = 1.0


@dataclass(frozen=True)
class Estimate:
    """The rates of a rule, or by how much one rule's are above another's; None where nothing agrees with it."""

    tries: int
    rates: Rates | None
    intervals: tuple[Interval, ...] | None
    """Of each rate, as draws of the record say."""

    @property
    def is_told(self) -> bool:
        """Of a difference in keeps per try: whether the intervals, weighted and not, leave out zero on one side."""
        if self.intervals is None:
            return False
        keeps, _, weighted, _ = self.intervals
        return min(keeps[0], weighted[0]) > 0 or max(keeps[1], weighted[1]) < 0


@dataclass(frozen=True)
class Comparison:
    """How the rules fare on the same record."""

    record: Estimate
    """Of all tries, whatever the rules say."""
    rules: Mapping[str, Estimate]
    difference: Estimate
    """Yields less published; `tries`: those on which both say something else."""


def mode_choices(tries: Sequence[Try], direction: Direction) -> list[Choice]:
    """Which mode each try was of, and which one each rule says."""
    return weighed(
        Choice(
            kind_of(this.end, kept_category(before)),
            {rule: _mode(before, near, adapt) for rule, adapt in RULES.items()},
            this.end.status == "keep",
            gain,
        )
        for this, before, near, gain in _points(tries, direction)
    )


def category_choices(tries: Sequence[Try], direction: Direction, categories: Sequence[str]) -> list[Choice]:
    """Which category each try explored, and which one each rule says; tries of other modes are left out.

    For both rules as if there were no categories that are a mode by themselves.
    """
    explored = [category for category in categories if category not in OF_CATEGORY]
    return weighed(
        Choice(
            this.end.category,
            {
                PUBLISHED: least_tried_of(_counted(before), explored),
                YIELDS: best_category(before[-RULES[YIELDS].ends_read :], explored),
            },
            this.end.status == "keep",
            gain,
        )
        for this, before, _, gain in _points(tries, direction)
        if kind_of(this.end, kept_category(before)) == "explore" and this.end.category != NO_CATEGORY
    )


def weighed(choices: Iterable[Choice]) -> list[Choice]:
    """Each try for the inverse of how often what it chose was chosen, in one record."""
    known = [*choices]
    often = Counter(choice.chosen for choice in known)
    return [replace(choice, weight=len(known) / often[choice.chosen]) for choice in known]


def scaled(choices: Iterable[Choice], unit: float) -> list[Choice]:
    """The same with gains in another unit."""
    return [replace(choice, gain=choice.gain / unit) for choice in choices]


def compared(parts: Sequence[Sequence[Choice]], draws: Sequence[Sequence[int]]) -> Comparison:
    """The rules on a record of several parts, each whole in a draw or not; `draws`: places of parts, some twice."""
    whole = [choice for part in parts for choice in part]
    drawn = [[choice for place in draw for choice in parts[place]] for draw in draws]
    rates = {rule: [_rates(choices, rule) for choices in (whole, *drawn)] for rule in (None, *RULES)}
    above = [
        None if a is None or b is None else _less(a, b)
        for a, b in zip(rates[YIELDS], rates[PUBLISHED], strict=True)
    ]
    agreed = {rule: sum(c.wanted[rule] == c.chosen for c in whole) for rule in RULES}
    differ = sum(c.wanted[YIELDS] != c.wanted[PUBLISHED] for c in whole)
    return Comparison(
        _estimate(len(whole), len(whole), rates[None]),
        {rule: _estimate(agreed[rule], agreed[rule], rates[rule]) for rule in RULES},
        _estimate(differ, min(agreed.values()), above),
    )


def _points(tries: Sequence[Try], direction: Direction) -> Iterator[tuple[Try, list[End], int, float]]:
    """Each try after the first few, the ends before it, the near misses then, and its gain."""
    best: float | None = None
    for place, this in enumerate(tries):
        kept = this.end.status == "keep"
        gain = 0.0
        if kept and this.value is not None and best is not None:
            gain = max(0.0, score(best, direction) - score(this.value, direction))
        if place >= Adapt().min_finished and not this.end.baseline and this.end.error_kind != "infra":
            near = sum(_is_near_miss(each, best, direction) for each in tries[:place])
            yield this, [each.end for each in tries[:place]], near, gain
        if kept and this.value is not None:
            best = this.value


def _mode(ends: Sequence[End], near: int, adapt: Adapt) -> Mode:
    return next_strategy(ends[-adapt.ends_read :], len(ends), near, adapt).mode


def _is_near_miss(each: Try, best: float | None, direction: Direction) -> bool:
    if best is None or each.value is None or each.end.status != "discard":
        return False
    return is_near(each.value, best, direction, LEAST)


def _counted(ends: Iterable[End]) -> dict[str, tuple[int, int]]:
    """Total and kept of each category, as a tag counts them."""
    found: dict[str, tuple[int, int]] = {}
    for end in ends:
        if not (end.baseline or end.category in OF_CATEGORY):
            total, kept = found.get(end.category, (0, 0))
            found[end.category] = (total + 1, kept + (end.status == "keep"))
    return found


def _rates(choices: Iterable[Choice], rule: str | None) -> Rates | None:
    """Keeps and gain per try of those that the rule would have chosen; of all where no rule is named."""
    agreed = [c for c in choices if rule is None or c.wanted[rule] == c.chosen]
    if not agreed:
        return None
    weight = math.fsum(c.weight for c in agreed)
    return (
        sum(c.kept for c in agreed) / len(agreed),
        math.fsum(c.gain for c in agreed) / len(agreed),
        math.fsum(c.weight * c.kept for c in agreed) / weight,
        math.fsum(c.weight * c.gain for c in agreed) / weight,
    )


def _less(a: Rates, b: Rates) -> Rates:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3])


def _estimate(tries: int, agreed: int, rates: Sequence[Rates | None]) -> Estimate:
    """From the rates of the record, then those of its draws; a draw in which nothing agrees is left out."""
    known = [drawn for drawn in rates[1:] if drawn is not None]
    if agreed < AGREED or not known:
        return Estimate(tries, rates[0], None)
    return Estimate(tries, rates[0], tuple(_interval(values) for values in zip(*known, strict=True)))


def _interval(values: Sequence[float]) -> Interval:
    ordered = sorted(values)
    outside = int(len(ordered) * (1 - CENTRAL) / 2)
    return ordered[outside], ordered[-1 - outside]
