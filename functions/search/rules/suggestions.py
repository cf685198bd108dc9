"""What an agent could try next, as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from functions.branches.rules.ancestry import branch
from functions.experiments.rules.verdict import is_near, main_key
from functions.formats.metrics_block import deciding_line
from functions.trust.rules.noise import near_margin
from state.facts import SearchFacts
from state.records import Direction, Mention, Mode, Sketch, score

ENOUGH_TRIES = 3
HIGH_YIELD = 0.3
BARREN_TRIES = 10


@dataclass(frozen=True)
class Least:
    """The category to look at where the search explores, and what was tried there."""

    category: str
    tries: Sequence[Sketch] = ()
    """Some of the newest, oldest first."""
    is_new: bool = False
    """Nothing of it has finished."""


def underexplored(stats: Mapping[str, tuple[int, int]], categories: Sequence[str]) -> list[str]:
    """Categories with fewer than 3 tries, without `other`: the untried first, then those kept most often."""
    tried = {c: stats.get(c, (0, 0)) for c in categories if c != "other"}
    shares = {
        c: kept / total if total else math.inf for c, (total, kept) in tried.items() if total < ENOUGH_TRIES
    }
    return sorted(shares, key=shares.__getitem__, reverse=True)


def high_yield(stats: Mapping[str, tuple[int, int]]) -> list[str]:
    """Categories with at least 3 tries of which more than 30 % were kept, best first."""
    rates = {c: kept / total for c, (total, kept) in stats.items() if total >= ENOUGH_TRIES}
    return sorted((c for c, rate in rates.items() if rate > HIGH_YIELD), key=lambda c: (-rates[c], c))


def barren(stats: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Categories with at least 10 tries and no keep, by their tries, the most first."""
    empty = {c: total for c, (total, kept) in stats.items() if total >= BARREN_TRIES and kept == 0}
    return dict(sorted(empty.items(), key=lambda each: (-each[1], each[0])))


def least_tried_of(stats: Mapping[str, tuple[int, int]], categories: Sequence[str]) -> str:
    """The category to look at first; of equals the first one in `categories`, without `other`.

    While some have fewer than 3 tries, the one of these where the fewest came to nothing: a keep is a reason to go on
    there. Later the one with the fewest tries.
    """
    few = underexplored(stats, categories)
    if few:
        among = (c for c in categories if c in few)
        return min(among, key=lambda c: stats[c][0] - stats[c][1] if c in stats else 0)
    return min((c for c in categories if c != "other"), key=lambda c: stats[c][0])


def uncombined_pair(
    near_misses: Sequence[Mention], combined: Iterable[Sequence[str]]
) -> tuple[Mention, Mention] | None:
    """The two best near misses that are not together in `combined`, lists of parents.

    Those of different categories come first: two changes of one category are likelier to be one change twice.
    """
    done = {frozenset(pair) for parents in combined for pair in combinations(parents, 2)}
    is_mixed = len({each.category for each in near_misses}) > 1
    best = None
    for a, b in combinations(near_misses, 2):
        is_alike = a.category == b.category
        if (is_alike and best) or frozenset((a.experiment_id, b.experiment_id)) in done:
            continue
        if not (is_alike and is_mixed):
            return a, b
        best = a, b
    return best


def near_to(
    base: Sketch | None, among: Iterable[Sketch], direction: Direction, margin: float
) -> list[Sketch]:
    """Near misses of an experiment, the best first."""
    if base is None or base.own_value is None:
        return []
    near = [
        (score(e.own_value, direction), e.number, e)
        for e in among
        if e.status == "discard"
        and not e.is_claim
        and e.own_value is not None
        and is_near(e.own_value, base.own_value, direction, margin)
    ]
    return [e for *_, e in sorted(near, key=lambda each: each[:2])]


@dataclass(frozen=True)
class Ground:
    """What the next idea builds on."""

    base: Sketch | None
    commit_sha: str | None
    near: Sequence[Mention]
    """Near misses of the base, best first."""
    near_count: int
    recent: Sequence[Sketch]
    """Oldest first."""
    merging: Sequence[Sketch] = ()
    """The experiments that a merge combines."""
    beside: Sequence[Sketch] | None = None
    """For a new root: the roots of the other branches."""


def suggest(
    mode: Mode,
    ground: Ground,
    *,
    unexplored: Sequence[str],
    yielding: Sequence[str],
    pair: tuple[Mention, Mention] | None,
    least: Least | None = None,
    barren: Mapping[str, int] | None = None,
    waits_for: str | None = None,
    crashes_in_a_row: int = 0,
) -> list[str]:
    """One to five concrete ideas, most wanted first; never empty.

    `pair`: two near misses of the ground to combine; `waits_for`: words for the baseline that the lab runs;
    `crashes_in_a_row`: so many that nothing new is tried.
    """
    best, recent, merging, beside = ground.base, ground.recent, ground.merging, ground.beside
    crashed = [e for e in recent if e.status in ("crash", "timeout")]
    avoid = [f"Avoid what crashed {e.experiment_id}: {_reason(e)}" for e in crashed[-1:]]
    if crashes_in_a_row:
        what = short(best.experiment_id) if best else "train.py"
        return [f"Run {what} unchanged: {crashes_in_a_row} runs in a row crashed.", *avoid]
    if merging:
        parts = [f"{e.experiment_id} ({e.category}: {short(e.diff_summary, 120)})" for e in merging]
        return [f"Combine {' and '.join(parts)}; where they contradict each other, take the better one."]
    if best is None and beside is not None:
        others = [f"{e.experiment_id} ({short(e.description, 60)})" for e in beside[-4:]]
        unlike = f", unlike the first changes of the other branches: {', '.join(others)}" if others else ""
        return [f"A new branch from the tag's base commit: try one change in {_where(least)}{unlike}."]
    if best is None:
        return [_before_the_first_result(waits_for, _where(least))]
    base = f"{short(best.experiment_id)} ({short(best.description, 80)})"
    match mode:
        case "combine" if pair is not None:
            a, b = pair
            ideas = [
                f"Combine {a.experiment_id} ({a.category}: {short(a.diff_summary, 120)}) with {b.experiment_id}"
                f" ({b.category}: {short(b.diff_summary, 120)}):"
                " both just missed; register it with both as parent_ids."
            ]
        case "combine":
            ideas = [_without_pair(ground.near, base)]
        case "ablation":
            ideas = [
                f"Remove the newest addition from {base}: if the value stays within noise, simpler code is a gain."
            ]
        case "exploit":
            where = f" in {yielding[0]}" if yielding else ""
            ideas = [f"Refine {base}: try a smaller or larger step of the last kept change{where}."]
        case "explore":
            ideas = [f"Try one change in {_where(least, best)} on top of {base}."]
    ideas += avoid
    if mode != "explore" and unexplored:
        ideas.append(f"Not tried enough yet: {', '.join(unexplored[:4])}.")
    if mode not in ("exploit", "explore") and yielding:
        ideas.append(f"Pays off most: {', '.join(yielding[:3])}.")
    if barren:
        counts = ", ".join(f"{total} {category}, 0 keeps" for category, total in [*barren.items()][:4])
        ideas.append(f"Barren so far: {counts}.")
    return ideas


def _reason(crashed: Sketch) -> str:
    """Its last exception, or how the lab says that it ended."""
    return short(deciding_line(crashed.error or "", crashed.error_kind) or "unknown", 160)


def _before_the_first_result(baseline: str | None, where: str) -> str:
    """The unchanged code comes first: where workers train the lab runs it, else an agent does."""
    if baseline is None:
        return (
            "Run the unchanged train.py first: its result is the baseline that everything is compared with."
        )
    return (
        f"The lab runs {baseline} first, the unchanged train.py that everything is compared with."
        f" Meanwhile prepare one change in {where} to the tag's base commit, and submit it: it waits behind the"
        " baseline."
    )


def _where(least: Least | None, best: Sketch | None = None) -> str:
    """The category to explore, with what was tried there; the best itself is left out."""
    if least is None:
        return "a category with few recent tries"
    if least.is_new and not least.tries:
        return f"{least.category} (not tried yet)"
    others = [e for e in least.tries if best is None or e.experiment_id != best.experiment_id]
    told = "; ".join(f"{e.experiment_id} {e.status}: {short(e.description, 50)}" for e in others[-3:])
    return f"{least.category} (tried there: {told})" if told else least.category


def _without_pair(near: Sequence[Mention], base: str) -> str:
    """Advice instead of a combination when no pair of near misses is left."""
    if not near:
        return (
            f"No near miss is there to combine: take another step of the last kept change on top of {base}."
        )
    first = f"{near[0].experiment_id}: {short(near[0].diff_summary, 120)}"
    if len(near) == 1:
        return f"One near miss alone is there: repeat it on top of {base} with a larger step ({first})."
    return (
        f"All pairs of {len(near)} near misses were tried: repeat the best one with a larger step ({first})."
    )


def short(text: str, most: int = 60) -> str:
    """One line of at most `most` characters, cut after a word where one ends in its last third."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    words = line[:most].rpartition(" ")[0]
    return (words if len(words) > 2 * most / 3 else line[: most - 1]) + "…"


RECENT = 10


def ground_of(facts: SearchFacts) -> Ground:
    """The tag's best, near misses and newest results; or, with a selection, those of its branch."""
    tag, best, chosen = facts.tag, facts.best, facts.chosen
    if chosen is None:
        commit_sha = best.commit_sha if best else tag.base_commit
        return Ground(facts.base, commit_sha, facts.near, facts.near_count, facts.recent)
    above = branch(chosen.parent_ids, facts.ancestors, tag.direction, main_key(tag)).ancestors
    margin = near_margin(facts.policy, facts.noise.noise)
    near = near_to(facts.base, above, tag.direction, margin)
    commit_sha = chosen.base_commit_sha or tag.base_commit
    return Ground(facts.base, commit_sha, near, len(near), above[-RECENT:], facts.merging, facts.beside)
