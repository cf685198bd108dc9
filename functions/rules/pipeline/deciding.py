"""What a batch of results decides: the hypothesis that the swarm is about, and what it does with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from functions.rules.beliefs.allocation import information_value
from functions.rules.swarm.populations import Population
from state.records import Decision, Hypothesis


def decided(
    populations: Iterable[Population], opened: Mapping[str, Hypothesis], before: Decision | None
) -> Decision | None:
    """The leading hypothesis and its strategy; None: no population tests a hypothesis.

    The population with the largest target leads. Of several the one that led `before` does, so that equal shares
    change no program; else the one whose next result is worth most, then the lower id.
    """

    def place(p: Population) -> tuple[int, bool, float, str]:
        h = opened.get(p.hypothesis_id or "")
        has_led = before is not None and p.hypothesis_id == before.hypothesis_id
        return -p.target, not has_led, -information_value(h) if h else 0.0, p.hypothesis_id or ""

    found = min((p for p in populations if p.hypothesis_id is not None), key=place, default=None)
    if found is None:
        return None
    return Decision(hypothesis_id=found.hypothesis_id or "", strategy=found.strategy)
