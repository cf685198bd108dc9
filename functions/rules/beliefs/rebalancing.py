"""Which population a worker belongs to for its next run."""

from __future__ import annotations

from collections.abc import Mapping


def population_for(
    current: str | None, targets: Mapping[str, int], assigned: Mapping[str, int]
) -> str | None:
    """The population of a worker that asks for its next run; None where there is none.

    `targets` are workers by population, `assigned` its active workers now, with this one where it is in `current`
    (None: its first contact). A worker without a population joins the one that lacks most workers; so does one whose
    population has ended. Another one moves only out of a population with too many workers into one with too few,
    so no move calls for another: with the same targets no worker moves twice. Once each worker has asked, membership
    agrees with targets for as many workers as there are.

    Of populations that lack equally many the one with the larger target comes first, then the lower id.
    """
    if not targets:
        return None
    others = dict(assigned)
    if current is not None and current in targets:
        if others.get(current, 0) <= targets[current]:
            return current
        others[current] -= 1
    lacking = min(targets, key=lambda name: (others.get(name, 0) - targets[name], -targets[name], name))
    if current is not None and current in targets and others.get(lacking, 0) >= targets[lacking]:
        return current  # all have enough: there are more workers than the targets are for
    return lacking


def steadied(before: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
    """The targets in force after others were computed: those before, while no population gains or loses 2 workers.

    A difference of 1 comes from rounding, and would have workers change their population after every allocation.
    Other populations, another number of workers, and a population that gets its first worker or loses its last one
    always count.
    """
    same = before.keys() == wanted.keys() and sum(before.values()) == sum(wanted.values())
    if same and all(_is_close(before[name], wanted[name]) for name in wanted):
        return dict(before)
    return dict(wanted)


def _is_close(before: int, wanted: int) -> bool:
    return abs(before - wanted) <= 1 and (before == 0) == (wanted == 0)
