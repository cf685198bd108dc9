"""The kind of a try: which of the search's four modes it belongs to, by its category and what was kept before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from state.records import End, Mode

OF_CATEGORY: Final[dict[str, Mode]] = {
    "combination": "combine",
    "ablation": "ablation",
    "simplification": "ablation",
}
"""Categories that are a mode by themselves; all others are explored or exploited."""
NO_CATEGORY: Final = "other"
"""Category of a try whose agent names none."""


def kind_of(end: End, kept: str | None) -> Mode:
    """Combine and ablation by category or parents; exploit in the category of the newest keep, else explore."""
    if end.merges:
        return "combine"
    return OF_CATEGORY.get(end.category, "exploit" if end.category == kept else "explore")


def with_kinds(ends: Iterable[End]) -> Iterator[tuple[End, Mode]]:
    """Every try with its kind, from ends oldest first; baselines and faults of the infrastructure are no tries."""
    kept = None
    for end in ends:
        if end.baseline or end.error_kind == "infra":
            continue
        yield end, kind_of(end, kept)
        kept = kept_category([end]) or kept


def kept_category(ends: Iterable[End]) -> str | None:
    """The category of the newest keep that can be gone on with, of ends oldest first; None where there is none."""
    kept = [
        end.category
        for end in ends
        if end.status == "keep" and not (end.baseline or end.category in OF_CATEGORY)
    ]
    return kept[-1] if kept else None
