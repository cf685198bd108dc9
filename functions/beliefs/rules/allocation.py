"""Number of workers for each hypothesis, by the information value of its next result."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from functions.beliefs.rules.evidence import ARCHIVED
from state.records import Hypothesis

MOONSHOT: Final = "moonshot"
"""Name of the population that tests no hypothesis and explores the ends of the ranges."""
PROVEN_AFTER: Final = 12
"""Results after which a model's proposal is as credible as any other."""
FIRST_CREDIBILITY: Final = 0.25
"""Credibility of a model's proposal without results."""


MIN_WORKERS: Final = 3
"""Least number of workers for an active hypothesis, while there are enough."""
MIN_UNPROVEN: Final = 1
"""The same for a model's proposal with fewer than 12 results."""
MOONSHOT_SHARE: Final = 0.05
"""Share of the workers that test no hypothesis."""
CONVERGED_SHARE: Final = 0.7
"""Share of the workers for hypotheses that have converged."""
CONVERGED_SUPPORT: Final = 0.85
"""Least support probability of a converged hypothesis."""
CONVERGED_AFTER: Final = 15
"""Least number of its results."""
LEAST_SPREAD: Final = 0.3
"""Ranges of information values below this are not widened further."""
SPREAD_UNITS: Final = 3.0
"""Distance of the lowest from the highest information value after standardisation."""


def credibility(hypothesis: Hypothesis) -> float:
    """1; for a model's proposal 0.25 without results, rising linearly to 1 at 12 results."""
    if hypothesis.source != "llm_proposed":
        return 1.0
    return min(1.0, FIRST_CREDIBILITY + (1 - FIRST_CREDIBILITY) * hypothesis.n_experiments / PROVEN_AFTER)


def information_value(hypothesis: Hypothesis) -> float:
    """uncertainty x importance x credibility x penalty, 0 to 1.

    The uncertainty is the variance of a Bernoulli outcome relative to its maximum: 1 at P = 0.5, 0 at certainty.
    """
    p = hypothesis.probability
    return 4 * p * (1 - p) * hypothesis.importance * credibility(hypothesis) * hypothesis.allocation_penalty


def has_converged(support: float, n_experiments: int) -> bool:
    """Whether a hypothesis is so well supported that most workers build on it."""
    return support >= CONVERGED_SUPPORT and n_experiments >= CONVERGED_AFTER


def minimum(hypothesis: Hypothesis) -> int:
    """Least number of workers for an active hypothesis, while there are enough."""
    unproven = hypothesis.source == "llm_proposed" and hypothesis.n_experiments < PROVEN_AFTER
    return MIN_UNPROVEN if unproven else MIN_WORKERS


def targets(
    hypotheses: Sequence[Hypothesis],
    active_workers: int,
    temperature: float = 1.0,
    *,
    converged: Collection[str] = (),
    turn: int = 0,
) -> dict[str, int]:
    """Workers of each hypothesis, by its id, and of `MOONSHOT`; their sum is `active_workers`.

    Shares are proportional to exp(z / temperature), and at least the minimum. z is the standardised information
    value: its unit is a third of the range of all values, and at least 0.1. A third of the range is about one
    standard deviation. Unlike a standard deviation, it never takes workers from a hypothesis whose own value rises.
    Fractions are rounded by largest remainders (Hamilton's method), so the sum is exact.

    `converged` hypotheses share 70 % of the workers, less where the others need more for their minimum.

    With too few workers for every minimum, some hypotheses get theirs and the others nothing. These are the most
    valuable ones at turn 0, those left out at the next `turn`, and so on. `turn` counts allocations. Moonshots get
    5 % of the workers over the turns, as long as every hypothesis has its minimum.

    Hypotheses settled as refuted or irrelevant are left out. Without hypotheses the answer is empty.
    """
    parties = _parties(hypotheses, temperature)
    if not parties:
        return {}
    needed = sum(party.least for party in parties)
    if active_workers < needed:
        return dict.fromkeys((p.name for p in parties), 0) | _in_turn(parties, active_workers, turn)
    shots = min(_moonshots(active_workers, turn), active_workers - needed)
    shared = _with_converged(parties, active_workers - shots, active_workers, converged)
    return shared | ({MOONSHOT: shots} if shots else {})


@dataclass(frozen=True)
class _Party:
    """A hypothesis that competes for workers."""

    name: str
    value: float
    weight: float
    """exp(z / temperature), relative to the most valuable hypothesis."""
    least: int


def _parties(hypotheses: Sequence[Hypothesis], temperature: float) -> list[_Party]:
    """Open hypotheses, the most valuable first, then by id."""
    values = {h.hypothesis_id: information_value(h) for h in hypotheses if h.settled not in ARCHIVED}
    if not values:
        return []
    highest = max(values.values())
    unit = max(highest - min(values.values()), LEAST_SPREAD) / SPREAD_UNITS
    found = [
        _Party(
            h.hypothesis_id,
            value := values[h.hypothesis_id],
            math.exp((value - highest) / unit / temperature),
            minimum(h),
        )
        for h in hypotheses
        if h.settled not in ARCHIVED
    ]
    return sorted(found, key=lambda party: (-party.value, party.name))


def _moonshots(workers: int, turn: int) -> int:
    """Moonshots of this turn. With few workers only some turns have one; over many turns the share is exact."""
    each = workers * MOONSHOT_SHARE
    return math.floor((turn + 1) * each + 1e-9) - math.floor(turn * each + 1e-9)


def _with_converged(
    parties: Sequence[_Party], workers: int, all_workers: int, converged: Collection[str]
) -> dict[str, int]:
    winners = [party for party in parties if party.name in converged]
    others = [party for party in parties if party.name not in converged]
    if not winners or not others:
        return _shared(parties, workers)
    needed, kept = (sum(party.least for party in group) for group in (winners, others))
    to_winners = min(max(round(CONVERGED_SHARE * all_workers), needed), workers - kept)
    return _shared(winners, to_winners) | _shared(others, workers - to_winners)


def _shared(parties: Sequence[_Party], workers: int) -> dict[str, int]:
    """Whole workers by weight, at least each party's minimum; `workers` must suffice for the sum of the minima."""
    quotas = _quotas(parties, workers)
    found = {party.name: math.floor(quota) for party, quota in zip(parties, quotas, strict=True)}
    left = workers - sum(found.values())
    # sorted() keeps the order of equal ones: the more valuable first
    ranks = sorted(range(len(parties)), key=lambda n: math.floor(quotas[n]) - quotas[n])
    for n in ranks[:left]:
        found[parties[n].name] += 1
    return found


def _quotas(parties: Sequence[_Party], workers: int) -> list[float]:
    """max(least, L * weight) of each party, where L makes the sum `workers`."""
    bound: set[int] = set()
    while True:
        free = [n for n in range(len(parties)) if n not in bound]
        rest = workers - sum(parties[n].least for n in bound)
        total = sum(parties[n].weight for n in free)
        level = rest / total if total else 0.0
        below = {n for n in free if level * parties[n].weight < parties[n].least}
        if not below:
            # rounded, so that equal weights have equal remainders
            return [
                float(party.least) if n in bound else round(level * party.weight, 9)
                for n, party in enumerate(parties)
            ]
        bound |= below


def _in_turn(parties: Sequence[_Party], workers: int, turn: int) -> dict[str, int]:
    """Allocation of too few workers: to the hypotheses whose turn it is."""
    groups: list[list[_Party]] = [[]]
    for party in parties:
        if groups[-1] and sum(p.least for p in groups[-1]) + party.least > workers:
            groups.append([])
        groups[-1].append(party)
    mine = groups[turn % len(groups)]
    names = {party.name for party in mine}
    mine = mine + [party for party in parties if party.name not in names]
    served: dict[str, int] = {}
    for party in mine:
        if not served or sum(served.values()) + party.least <= workers:
            served[party.name] = min(party.least, workers)
    served[mine[0].name] += workers - sum(served.values())
    return served


def population_for(
    current: str | None, targets: Mapping[str, int], assigned: Mapping[str, int]
) -> str | None:
    """The population of a worker that asks for its next run; None if there are none.

    `targets` and `assigned` are numbers of workers by population. `assigned` counts this worker in `current` (None:
    its first contact). A worker without a population, or whose population has ended, joins the population with the
    largest deficit. Ties go to the larger target, then to the lower id. Other workers move only from a surplus to a
    deficit. So with the same targets no worker moves twice, and targets are met once each worker has asked.
    """
    if not targets:
        return None
    own = current if current in targets else None
    if own is not None and assigned.get(own, 0) <= targets[own]:
        return own
    lacking = min(targets, key=lambda name: (assigned.get(name, 0) - targets[name], -targets[name], name))
    if own is not None and assigned.get(lacking, 0) >= targets[lacking]:
        return own  # no population has a deficit: there are more workers than targets
    return lacking


def steadied(before: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
    """The targets in force after an allocation: the old ones, unless a population gains or loses 2 workers or more.

    Rounding makes differences of 1, which would move workers after every allocation. Other populations, another
    number of workers, and a population that gets its first worker or loses its last one always count.
    """
    same = before.keys() == wanted.keys() and sum(before.values()) == sum(wanted.values())
    if same and all(_is_close(before[name], wanted[name]) for name in wanted):
        return dict(before)
    return dict(wanted)


def _is_close(before: int, wanted: int) -> bool:
    return abs(before - wanted) <= 1 and (before == 0) == (wanted == 0)
