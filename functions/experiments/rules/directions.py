"""Direction of a metric, from the words of its name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from state.errors import Invalid
from state.records import Direction

KNOWN: Mapping[Direction, frozenset[str]] = {
    "minimize": frozenset({"loss", "bpb", "perplexity", "error", "mse", "mae", "rmse", "wer", "fid"}),
    "maximize": frozenset(
        {"acc", "accuracy", "auc", "f1", "bleu", "rouge", "r2", "iou", "map", "reward", "score"}
    ),
}


def direction_of(metric: str) -> Direction:
    """The direction that a metric's name implies. Raises Invalid: no word of it is known, or two disagree."""
    words = named_words(metric)
    found: list[Direction] = [direction for direction, known in KNOWN.items() if words & known]
    if len(found) == 1:
        return found[0]
    why = (
        f"its words {' and '.join(sorted(words & set().union(*KNOWN.values())))} disagree"
        if found
        else "no word of its name is known"
    )
    raise Invalid(
        f"it is not said whether a lower or a higher {metric} is better, and {why}",
        hint='send its direction, "minimize" or "maximize"',
    )


def named_words(metric: str) -> frozenset[str]:
    """The words of a metric's name, in lower case."""
    return frozenset(re.split(r"[_\-./@ ]+", metric.lower()))


def is_known(metric: str) -> bool:
    """Whether a word of this name is that of a metric."""
    return any(named_words(metric) & known for known in KNOWN.values())
