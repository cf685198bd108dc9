"""What `nightjar replay --transitions` shows: which rule of the search would have chosen the tries that were kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from random import Random
from typing import Any

from functions.contract import CATEGORIES
from functions.rules.search.comparing import (
    RULES,
    Choice,
    Comparison,
    Estimate,
    category_choices,
    compared,
    mode_choices,
    scaled,
)
from state.errors import Invalid
from state.records import Direction
from triggers.cli.output import print_json, show
from triggers.cli.recorded import Recorded
from triggers.cli.tables import Column, print_table

FEWEST = 20
"""Tries of which a comparison says anything at all."""
DRAWS = 1000
RATES = ("keeps per try", "gain per try", "keeps, weighted", "gain, weighted")
WEIGHTED = "Weighted: each try for the inverse of how often its kind was tried. Intervals hold 95 % of {}."
BIAS = (
    "Agents did not choose at random, and a rule is asked at the points that they reached: it is a comparison of"
    " single recommendations, not of whole nights."
)


def show_transitions(
    what: str, recorded: Recorded, direction: Direction, sigma: float, *, as_json: bool
) -> None:
    """The rules beside each other on one record; gains in sigmas.

    Raises:
        Invalid: the record is too short, or its noise is zero.
    """
    if sigma <= 0:
        raise Invalid("gains are told in sigmas, and sigma is 0", hint="give one above 0 with --sigma")
    modes = scaled(mode_choices(recorded.tries, direction), sigma)
    if len(modes) < FEWEST:
        raise Invalid(
            f"{what} is too short: it has {len(modes)} tries after the first five, baselines aside,"
            f" and transitions are compared on {FEWEST} or more",
            hint="several logs together say more: bench.transitions, in bench/README.md",
        )
    found = {
        "modes": on_one_record(modes),
        "categories": on_one_record(scaled(category_choices(recorded.tries, direction, CATEGORIES), sigma)),
    }
    if as_json:
        print_json(
            {"source": what, "metric": recorded.metric, "sigma": sigma}
            | {name: document(comparison) for name, comparison in found.items()}
        )
        return
    show(f"{what}: gains in sigmas of {sigma:.6g}")
    print_comparison(found["modes"], "search::adapt, the mode")
    print_comparison(found["categories"], "search::suggest_direction, the category to explore")
    show(told(found["modes"]))
    show(WEIGHTED.format("draws of the tries with replacement"))
    show(BIAS)


def on_one_record(choices: Sequence[Choice]) -> Comparison:
    """The rules on one record, whose tries are drawn one by one."""
    return compared([[choice] for choice in choices], draws(len(choices)))


def draws(parts: int, many: int = DRAWS) -> list[list[int]]:
    """Places of parts, as many as there are, drawn with replacement; the same ones each time."""
    chance = Random(0)
    return [chance.choices(range(parts), k=parts) for _ in range(many)]


def told(comparison: Comparison) -> str:
    """In a sentence, which rule for the mode finds more."""
    better = comparison.difference
    if not better.is_told or better.rates is None:
        return "Between published and yields no difference can be told."
    return f"{'yields' if better.rates[0] > 0 else 'published'} finds more keeps per try."


def print_comparison(comparison: Comparison, title: str) -> None:
    """Print a row for the record, for each rule, and for their difference."""
    show(title)
    print_table(
        (
            Column("rule"),
            Column("tries"),
            *(Column(rate, spare=max(0, nth - 1)) for nth, rate in enumerate(RATES)),
        ),
        [
            ("the record", *_cells(comparison.record, signed=False)),
            *((rule, *_cells(comparison.rules[rule], signed=False)) for rule in RULES),
            ("yields less published", *_cells(comparison.difference, signed=True)),
        ],
    )


def _cells(estimate: Estimate, *, signed: bool) -> list[str]:
    sign = "+" if signed else ""
    tries = f"{estimate.tries} differ" if signed else str(estimate.tries)
    if estimate.rates is None:
        return [tries, *("-" for _ in RATES)]
    told = [f"{rate:{sign}.3g}" for rate in estimate.rates]
    if estimate.intervals is None:
        return [tries, *told]
    return [
        tries,
        *(
            f"{rate} [{low:{sign}.2g}, {high:{sign}.2g}]"
            for rate, (low, high) in zip(told, estimate.intervals, strict=True)
        ),
    ]


def document(comparison: Comparison) -> dict[str, Any]:
    """The same as JSON: rates in the order of `RATES`, with their intervals."""
    names = [name.replace(", ", "_").replace(" ", "_") for name in RATES]

    def shown(estimate: Estimate) -> dict[str, Any]:
        found = asdict(estimate)
        rates = dict(zip(names, found["rates"], strict=True)) if found["rates"] else None
        spread = dict(zip(names, found["intervals"], strict=True)) if found["intervals"] else None
        return {"tries": estimate.tries, "rates": rates, "intervals": spread}

    return {
        "record": shown(comparison.record),
        **{rule: shown(comparison.rules[rule]) for rule in RULES},
        "difference": shown(comparison.difference) | {"is_told": comparison.difference.is_told},
    }
