"""The best after a decision: its chain of keeps, and the rivals of the incumbent.

The incumbent is the oldest keep of the chain. The later ones are provisional, and the newest is the best.
"""

from __future__ import annotations

from collections.abc import Iterable

from functions.rules.keeps.verdict import score
from state.records import Best, Direction, Experiment, Link

MOST_STANDING = 100
"""Longest chain; beyond it the oldest keeps leave. Without retests a chain would grow for ever."""
MOST_RIVALS = 4
"""Discards that are run again once the keep that they lost to has fallen."""


def new_best(
    e: Experiment,
    value: float,
    best: Best | None,
    direction: Direction,
    code: str | None = None,
) -> Best | None:
    """The best after a run of this value; None: the run does not change it. `code` is the id of its code."""
    link = Link(
        experiment_id=e.experiment_id, val_bpb=value, commit_sha=e.commit_sha, code=code, trace_id=e.trace_id
    )
    if best is None or _beats(link, best.standing()[-1], direction):
        # A rule that was changed meanwhile leaves the keeps that wait for their retests waiting.
        is_unsettled = best is not None and len(best.chain) > 1
        if e.judged_by == "strict" and not is_unsettled:
            # Rivals are there after a retraction: those that are still better go on with their retests.
            rivals = [rival for rival in best.rivals if _beats(rival, link, direction)] if best else []
            return _with_seeds_of(best, _best([link], [link] if rivals else [], rivals))
        below, rivals = (best.standing(), best.rivals) if best else ([], [])
        return _with_seeds_of(best, _best_of([*below, link][-MOST_STANDING:], rivals, direction))
    if len(best.chain) > 1 and _beats(link, best.chain[0], direction):
        rivals = _nearest([*best.rivals, link], direction)[:MOST_RIVALS]
        return best.model_copy(update={"rivals": rivals}) if rivals != best.rivals else None
    return None


def stands(best: Best, name: str, direction: Direction) -> Best:
    """The best when this keep becomes the incumbent; older keeps leave the chain."""
    place = [link.experiment_id for link in best.chain].index(name)
    return _with_seeds_of(best, _best_of(best.chain[place:], best.rivals, direction))


def revalued(best: Best, name: str, value: float, direction: Direction) -> Best:
    """The best when this keep of the chain gets another value."""
    chain = [
        link.model_copy(update={"val_bpb": value}) if link.experiment_id == name else link
        for link in best.chain
    ]
    return _with_seeds_of(best, _best_of(chain, best.rivals, direction))


def falls(best: Best, name: str, direction: Direction) -> Best:
    """The best without this keep of the chain."""
    left = [link for link in best.chain if link.experiment_id != name]
    return _with_seeds_of(best, _best_of(left, best.rivals, direction))


def rises(best: Best, name: str) -> Best:
    """The best when this rival takes the incumbent's place."""
    link = next(rival for rival in best.rivals if rival.experiment_id == name)
    return _with_seeds_of(best, _best([link], [link], []))


def restored(
    best: Best, name: str, keeps: Iterable[Link], lost: Iterable[Link], direction: Direction
) -> Best | None:
    """The best after a retraction; None: no keep is left.

    If the incumbent was retracted, the best of the remaining `keeps` replaces it. Results in `lost` that beat the new
    incumbent become its rivals. What was learned about seeds is forgotten, because the result may be part of it.
    """
    standing = [link for link in best.standing() if link.experiment_id != name]
    if best.standing()[0].experiment_id == name:
        there = {link.experiment_id for link in standing}
        under = [keep for keep in keeps if keep.experiment_id not in there]
        standing = [*under[:1], *standing]
    if not standing:
        return None
    taken_back = {name, *(link.experiment_id for link in standing)}
    pool = {
        link.experiment_id: link for link in (*best.rivals, *lost) if link.experiment_id not in taken_back
    }
    foot = standing[0]
    beating = [link for link in pool.values() if link.code != foot.code and _beats(link, foot, direction)]
    rivals = _nearest(beating, direction)[:MOST_RIVALS]
    return _best(standing, standing if best.chain or rivals or len(standing) > 1 else [], rivals)


def without_rivals(best: Best) -> Best:
    return best.model_copy(update={"rivals": []})


def _with_seeds_of(best: Best | None, after: Best) -> Best:
    return after.model_copy(update={"seeds": best.seeds}) if best else after


def _best_of(chain: list[Link], rivals: Iterable[Link], direction: Direction) -> Best:
    return _best(chain, chain, [rival for rival in rivals if _beats(rival, chain[0], direction)])


def _best(standing: list[Link], chain: list[Link], rivals: list[Link]) -> Best:
    return Best(**standing[-1].model_dump(), updated_at=0.0, chain=chain, rivals=rivals)


def _beats(one: Link, other: Link, direction: Direction) -> bool:
    return score(one.val_bpb, direction) < score(other.val_bpb, direction)


def _nearest(links: Iterable[Link], direction: Direction) -> list[Link]:
    return sorted(links, key=lambda link: score(link.val_bpb, direction))
