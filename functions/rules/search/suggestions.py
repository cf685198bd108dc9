"""What an agent could try next, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from functions.rules.keeps.verdict import is_near, score
from state.records import Direction, Mention, Mode, Sketch

ENOUGH_TRIES = 3
HIGH_YIELD = 0.3


def underexplored(stats: Mapping[str, tuple[int, int]], categories: Sequence[str]) -> list[str]:
    """Categories with fewer than 3 tries, in the order of `categories`, without `other`."""
    return [c for c in categories if c != "other" and stats.get(c, (0, 0))[0] < ENOUGH_TRIES]


def high_yield(stats: Mapping[str, tuple[int, int]]) -> list[str]:
    """Categories with at least 3 tries of which more than 30 % were kept, best first."""
    rates = {c: kept / total for c, (total, kept) in stats.items() if total >= ENOUGH_TRIES}
    return sorted((c for c, rate in rates.items() if rate > HIGH_YIELD), key=lambda c: (-rates[c], c))


def uncombined_pair(
    near_misses: Sequence[Mention], combined: Iterable[Sequence[str]]
) -> tuple[Mention, Mention] | None:
    """The two best near misses of different categories that are not together in `combined`, lists of parents."""
    done = {frozenset(pair) for parents in combined for pair in combinations(parents, 2)}
    return next(
        (
            (a, b)
            for a, b in combinations(near_misses, 2)
            if a.category != b.category and frozenset((a.experiment_id, b.experiment_id)) not in done
        ),
        None,
    )


def near_to(
    base: Sketch | None, among: Iterable[Sketch], direction: Direction, margin: float
) -> list[Sketch]:
    """Near misses of an experiment, the best first."""
    if base is None or base.val_bpb is None:
        return []
    near = [
        (score(e.val_bpb, direction), e.number, e)
        for e in among
        if e.status == "discard"
        and e.val_bpb is not None
        and is_near(e.val_bpb, base.val_bpb, direction, margin)
    ]
    return [e for *_, e in sorted(near, key=lambda each: each[:2])]


def suggest(
    mode: Mode,
    *,
    unexplored: Sequence[str],
    yielding: Sequence[str],
    pair: tuple[Mention, Mention] | None,
    best: Sketch | None,
    recent: Sequence[Sketch],
    merging: Sequence[Sketch] = (),
    beside: Sequence[Sketch] | None = None,
) -> list[str]:
    """One to four concrete ideas, most wanted first; never empty.

    `merging`: the experiments that a selected merge combines; `beside`, for a new root: the roots of other branches.
    """
    if merging:
        parts = [f"{e.experiment_id} ({e.category}: {short(e.diff_summary, 120)})" for e in merging]
        return [f"Combine {' and '.join(parts)}; where they contradict each other, take the better one."]
    if best is None and beside is not None:
        where = unexplored[0] if unexplored else "a category with few recent tries"
        others = [f"{e.experiment_id} ({short(e.description, 60)})" for e in beside[-4:]]
        unlike = f", unlike the first changes of the other branches: {', '.join(others)}" if others else ""
        return [f"A new branch from the tag's base commit: try one change in {where}{unlike}."]
    if best is None:
        return [
            "Run the unchanged train.py first: its result is the baseline that everything is compared with."
        ]
    base = f"{short(best.experiment_id)} ({short(best.description, 80)})"
    crashed = [e for e in recent if e.status in ("crash", "timeout")]
    match mode:
        case "combine" if pair is not None:
            a, b = pair
            ideas = [
                f"Combine {a.experiment_id} ({a.category}: {short(a.diff_summary, 120)}) with {b.experiment_id}"
                f" ({b.category}: {short(b.diff_summary, 120)}):"
                " both just missed; register it with both as parent_ids."
            ]
        case "combine":
            ideas = ["All pairs of near misses were tried: repeat the best near miss with a larger step."]
        case "ablation":
            ideas = [
                f"Remove the newest addition from {base}: if the value stays within noise, simpler code is a gain.",
            ]
        case "exploit":
            where = f" in {yielding[0]}" if yielding else ""
            ideas = [f"Refine {base}: try a smaller or larger step of the last kept change{where}."]
        case "explore":
            where = unexplored[0] if unexplored else "a category with few recent tries"
            ideas = [f"Try one change in {where} on top of {base}."]
    if crashed:
        newest = crashed[-1]
        ideas.append(f"Avoid what crashed {newest.experiment_id}: {short(newest.error or 'unknown', 160)}")
    if mode != "explore" and unexplored:
        ideas.append(f"Not tried enough yet: {', '.join(unexplored[:4])}.")
    if mode not in ("exploit", "explore") and yielding:
        ideas.append(f"Pays off most: {', '.join(yielding[:3])}.")
    return ideas


def short(text: str, most: int = 60) -> str:
    """One line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
