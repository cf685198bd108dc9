"""Off-policy evaluation of the search's rules on a recorded sequence of tries (replay method of Li et al., 2011).

Each rule is asked before every recorded try. A try counts for a rule when it is of the kind that the rule
recommends. The method is unbiased where the record chose at random. Agents do not choose at random, so each rate is
also given with inverse-frequency weights (self-normalised). The weights correct for the kinds that agents prefer.
Two biases remain: agents choose a kind when they have a good idea of it, and each rule learns from the whole record.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from functions.experiments.rules.verdict import is_near
from functions.formats.results_log import LogRow, read_log
from functions.kernel.contract import CATEGORIES
from functions.search.rules.strategy import (
    MIN_FINISHED,
    NO_CATEGORY,
    OF_CATEGORY,
    best_category,
    kept_category,
    kind_of,
    next_strategy,
)
from functions.search.rules.suggestions import least_tried_of
from functions.trust.rules.noise import LEAST
from state.policy import Adapt
from state.records import Direction, End, Mode, Status, score
from triggers.cli.replay import Recorded, from_file

REST = re.compile(r"\(|:|;| — | – | -- |\bwith\b|\bhypothesis\b|\bevidence\b", re.IGNORECASE)
"""Words after which a description no longer names the change, but its reason or result."""
OPENING = re.compile(
    r"^\s*(?:gpu|agent|exp|worker)[ #_-]?\d*\s*:|^\s*(?:hypothesis|bottleneck)\s*:", re.IGNORECASE
)
"""Prefix before the change, such as the agent's name."""
WORDS: tuple[tuple[str, str], ...] = (
    ("combination", r"combin\w*|stack(?:ed|ing)|(?<=\s)\+(?=\s)|plus|merge\w*|together"),
    ("simplification", r"simplif\w*|simpler|clean ?up"),
    ("ablation", r"ablat\w*|remov\w*|disabl\w*|delet\w*|without|no|turn off"),
    ("initialization", r"init\w*|zero[ -]?init\w*|c proj init"),
    (
        "scheduling",
        r"warm ?up|warm ?down|schedul\w*|cosine|cool ?down|final lr\w*|wsd|curriculum|anneal\w*|lr decay",
    ),
    ("regularization", r"weight decay|wd|drop ?out|z[ -]?loss|label smoothing|regulari\w*"),
    ("hyperparams", r"lrs?|learning rates?|batch\w*|seeds?|grad(?:ient)? accum\w*|budget"),
    ("optimizer", r"clip\w*"),
    ("normalization", r"(?:rms|layer|pre|post|qk)[ -]?norm\w*|norm|normali\w*|softcap|(?:logit|soft) cap"),
    ("embedding", r"embed\w*|unembed\w*|rope|rotary|vocab\w*|weight tying|tied?|ve|wte|lm head|value mix"),
    (
        "attention",
        r"attention|attn|heads?|head dim|headwise|windows?|kv|gqa|mqa|sliding|s+l+|xsa|flexattention",
    ),
    ("activation", r"activation|relu\W?2?|squared relu|gelu|silu|swiglu|geglu|glu|swish|tanh"),
    ("optimizer", r"muon|adamw?|beta ?[12]|momentum|eps|ema|swa|ns steps|optimi[sz]er|sgd|lion|newton\w*"),
    (
        "architecture",
        r"depth|width|wider|deeper|narrower|aspect|mlp|ffn|layers?|dim|moe|router|experts?|skip|residual|resid\w*"
        r"|lambda|x0|hidden|parallel|conv\w*|gat(?:e|ed|ing)|u[ -]net|scal(?:e|ing)",
    ),
)
"""Words of each category, in order of precedence: actions come before the things that they change."""
PATTERNS = [(category, re.compile(rf"(?<![a-z0-9])(?:{words})(?![a-z])")) for category, words in WORDS]


def category_of(text: str) -> str:
    """The first category with a word in the change, else in the whole text; else `other`."""
    whole = re.sub(r"[_\s]+", " ", OPENING.sub("", text)).lower()
    change = REST.split(whole, maxsplit=1)[0]
    for part in (change, whole):
        for category, pattern in PATTERNS:
            if pattern.search(part):
                return category
    return "other"


PUBLISHED, YIELDS = "published", "yields"
RULES: Final = {PUBLISHED: Adapt(rule="published"), YIELDS: Adapt(rule="yields")}
"""The compared rules, with default limits."""
CENTRAL: Final = 0.95
"""Coverage of the intervals."""
AGREED: Final = 10
"""Fewest tries that a rule agrees with for an interval."""

Rates = tuple[float, float, float, float]
"""Keeps per try and gain per try of the tries that a rule agrees with, then both weighted."""
Interval = tuple[float, float]


@dataclass(frozen=True)
class Try:
    """One recorded try."""

    end: End
    value: float | None


@dataclass(frozen=True)
class Judged:
    """A recorded try, its result, and the kind that each rule recommended before it."""

    chosen: str
    recommended: Mapping[str, str]
    kept: bool
    gain: float
    """Improvement over the best at that time; 0 unless kept."""
    weight: float = 1.0


@dataclass(frozen=True)
class Estimate:
    """Rates of a rule, or the difference of two rules; None where no try agrees."""

    tries: int
    rates: Rates | None
    intervals: tuple[Interval, ...] | None
    """Bootstrap interval of each rate."""

    @property
    def is_significant(self) -> bool:
        """Whether both intervals of keeps per try exclude zero on the same side."""
        if self.intervals is None:
            return False
        keeps, _, weighted, _ = self.intervals
        return min(keeps[0], weighted[0]) > 0 or max(keeps[1], weighted[1]) < 0


@dataclass(frozen=True)
class Comparison:
    """All rules on one record."""

    record: Estimate
    """All tries."""
    rules: Mapping[str, Estimate]
    difference: Estimate
    """Yields minus published; `tries` counts those where the rules disagree."""


def recorded_tries(file: Path) -> tuple[Recorded, list[Try]]:
    """A log of results, and everything that it tried, crashes too.

    A category comes from the column `category` or `kind`, else from the words of the description.

    Raises:
        NightjarError: it is no such log.
    """
    recorded = from_file(file, None, None)
    kept = [run.name for run in recorded.runs if run.kept]
    return recorded, [_try(row, kept) for row in read_log(file.read_bytes(), None).rows]


def _try(row: LogRow, keeps: Sequence[str]) -> Try:
    """One row; a keep is a baseline if it is the first, or if its description says so."""
    name = f"line {row.line}"
    is_kept = name in keeps
    named = next(
        (cell for column in ("category", "kind") if (cell := row.more.get(column)) in CATEGORIES), None
    )
    is_baseline = is_kept and (name == keeps[0] or "baseline" in row.description.lower())
    status: Status = "keep" if is_kept else "crash" if row.outcome == "crash" else "discard"
    end = End(status, baseline=is_baseline, category=named or category_of(row.description))
    return Try(end, row.value)


def judged_modes(tries: Sequence[Try], direction: Direction) -> list[Judged]:
    """The mode of each try, and the mode that each rule recommends."""
    return weighed(
        Judged(
            kind_of(this.end, kept_category(before)),
            {rule: _mode(before, near, adapt) for rule, adapt in RULES.items()},
            this.end.status == "keep",
            gain,
        )
        for this, before, near, gain in _points(tries, direction)
    )


def judged_categories(tries: Sequence[Try], direction: Direction, categories: Sequence[str]) -> list[Judged]:
    """The category of each exploring try, and those the rules recommend; no mode is one."""
    explored = [category for category in categories if category not in OF_CATEGORY]
    return weighed(
        Judged(
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


def weighed(choices: Iterable[Judged]) -> list[Judged]:
    """Weight each try by the inverse frequency of its kind in the record."""
    known = [*choices]
    often = Counter(choice.chosen for choice in known)
    return [replace(choice, weight=len(known) / often[choice.chosen]) for choice in known]


def scaled(choices: Iterable[Judged], unit: float) -> list[Judged]:
    """The same with gains in another unit."""
    return [replace(choice, gain=choice.gain / unit) for choice in choices]


def compared(parts: Sequence[Sequence[Judged]], draws: Sequence[Sequence[int]]) -> Comparison:
    """Compare the rules; `draws` are bootstrap samples of indexes into `parts`."""
    whole = [choice for part in parts for choice in part]
    drawn = [[choice for place in draw for choice in parts[place]] for draw in draws]
    rates = {rule: [_rates(choices, rule) for choices in (whole, *drawn)] for rule in (None, *RULES)}
    above = [
        None if a is None or b is None else _less(a, b)
        for a, b in zip(rates[YIELDS], rates[PUBLISHED], strict=True)
    ]
    agreed = {rule: sum(c.recommended[rule] == c.chosen for c in whole) for rule in RULES}
    differ = sum(c.recommended[YIELDS] != c.recommended[PUBLISHED] for c in whole)
    return Comparison(
        _estimate(len(whole), len(whole), rates[None]),
        {rule: _estimate(agreed[rule], agreed[rule], rates[rule]) for rule in RULES},
        _estimate(differ, min(agreed.values()), above),
    )


def _points(tries: Sequence[Try], direction: Direction) -> Iterator[tuple[Try, list[End], int, float]]:
    """Each try after the first few, with the ends and the number of near misses before it, and its gain."""
    best: float | None = None
    for place, this in enumerate(tries):
        kept = this.end.status == "keep"
        gain = 0.0
        if kept and this.value is not None and best is not None:
            gain = max(0.0, score(best, direction) - score(this.value, direction))
        if place >= MIN_FINISHED and not this.end.baseline and this.end.error_kind != "infra":
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
    """Total and kept tries of each category, as a tag counts them."""
    found: dict[str, tuple[int, int]] = {}
    for end in ends:
        if not (end.baseline or end.category in OF_CATEGORY):
            total, kept = found.get(end.category, (0, 0))
            found[end.category] = (total + 1, kept + (end.status == "keep"))
    return found


def _rates(choices: Iterable[Judged], rule: str | None) -> Rates | None:
    """Rates of the tries that agree with `rule`; of all tries if it is None."""
    agreed = [c for c in choices if rule is None or c.recommended[rule] == c.chosen]
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
    """From the rates of the record, followed by those of its draws; draws without an agreeing try are left out."""
    known = [drawn for drawn in rates[1:] if drawn is not None]
    if agreed < AGREED or not known:
        return Estimate(tries, rates[0], None)
    return Estimate(tries, rates[0], tuple(_interval(values) for values in zip(*known, strict=True)))


def _interval(values: Sequence[float]) -> Interval:
    ordered = sorted(values)
    outside = int(len(ordered) * (1 - CENTRAL) / 2)
    return ordered[outside], ordered[-1 - outside]
