"""Whether a better run is kept, and the best after that: its chain of keeps, and its rivals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from functions.trust.rules.noise import standard_error
from state.records import Best, Direction, Experiment, Link, score

# -- Keep rules: whether a better run is kept, and whether it needs a second run first.

SURE_SIGMAS = 4.0
"""A margin of more sigmas than this needs no second run."""
ENOUGH_KEEPS = 10
"""Keeps after which a tag's largest gain says what is plausible."""
IMPLAUSIBLE = 5.0
"""A gain above so many times the largest one is run again."""
LEAST_ERRORS = 0.5
"""A candidate that ran again has to lead by this many standard errors of the difference."""


@dataclass(frozen=True)
class SeedScores:
    """Scores of one experiment's runs: lower is better (see `verdict.score`)."""

    name: str
    first: float
    """Score on the first seed, for which the experiment was chosen."""
    fresh: tuple[float, ...] = ()
    """Scores on the further seeds, in their order."""
    further: float | None = None
    """Mean of all further runs of its code, if noise does not explain their distance from the first; else None.
    The first score then says nothing about the code."""

    @property
    def contradicted(self) -> bool:
        return self.further is not None

    @property
    def claimed(self) -> float:
        """Mean of the fresh runs; without one, the first score, which is biased."""
        return math.fsum(self.fresh) / len(self.fresh) if self.fresh else self.first


Decision = Literal["keep", "provisional", "discard"]
"""`provisional`: the candidate is the new best until its second run says otherwise (`is_confirmed`)."""


KeepRule = Callable[[SeedScores, SeedScores | None, float | None, float | None], Decision]
"""What to do with a finished run: takes the candidate, the incumbent, `sigma` and `plausible`.

`sigma` is one run's standard deviation, enlarged for few repeats (`noise.cautious`). None: it is not known yet. A
margin above `plausible` needs a second run, whatever sigma is.
"""


def strict(
    candidate: SeedScores, incumbent: SeedScores | None, sigma: float | None, plausible: float | None
) -> Decision:
    """Keep a lower score."""
    return "keep" if incumbent is None or candidate.first < incumbent.first else "discard"


def confirmed(
    candidate: SeedScores, incumbent: SeedScores | None, sigma: float | None, plausible: float | None
) -> Decision:
    """Keep a lower score provisionally, unless noise cannot explain the margin."""
    if incumbent is None:
        return "keep"
    margin = incumbent.first - candidate.first
    if margin <= 0:
        return "discard"
    is_sure = sigma is not None and margin > SURE_SIGMAS * sigma
    return "keep" if is_sure and (plausible is None or margin <= plausible) else "provisional"


KEEP_RULES: Mapping[str, KeepRule] = {"strict": strict, "confirmed": confirmed}


def plausible_margin(largest_gain: float | None, keeps: int) -> float | None:
    """Largest plausible margin, from the tag's earlier gains; None while they are too few."""
    return IMPLAUSIBLE * largest_gain if largest_gain is not None and keeps >= ENOUGH_KEEPS else None


def is_confirmed(candidate: SeedScores, incumbent: SeedScores, sigma: float | None) -> bool:
    """Whether a provisional keep stays, now that both have run on the second seed; else it is demoted.

    Only seeds that both have run count, so that a seed's own effect cancels out.

    Raises:
        ValueError: one of them has not run again.
    """
    if not (candidate.fresh and incumbent.fresh):
        raise ValueError(f"{candidate.name!r} and {incumbent.name!r} have to run again first")
    shared = 1 + min(len(candidate.fresh), len(incumbent.fresh))
    skipped = int(candidate.contradicted or incumbent.contradicted)
    ahead = _mean(incumbent, shared, skipped) - _mean(candidate, shared, skipped)
    runs = shared - skipped
    return ahead > 0 and ahead >= LEAST_ERRORS * standard_error(sigma or 0.0, runs, runs)


def borne_out(incumbent: SeedScores, shift: float) -> float | None:
    """The incumbent's score on the first seed, estimated from both seeds; None without a usable second run.

    `shift` is the usual difference: score on the second seed minus score on the first.
    """
    if not incumbent.fresh or incumbent.contradicted:
        return None
    return (incumbent.first + incumbent.fresh[0] - shift) / 2


def is_hopeless(candidate: float, bar: float | None) -> bool:
    """Whether a candidate's first run is already too weak to win a retest.

    It beats the incumbent's first run, but not `bar`, the estimate from both runs of the incumbent.
    """
    return bar is not None and candidate >= bar


def winner(raced: Sequence[SeedScores], incumbent: SeedScores, sigma: float | None) -> SeedScores | None:
    """The racer with the best mean, if confirmed; None: the incumbent. Raises ValueError: one has not run again."""
    if not raced:
        return None
    shared = 1 + min(len(trial.fresh) for trial in raced)
    best = min(raced, key=lambda trial: _mean(trial, shared, int(trial.contradicted)))
    return best if is_confirmed(best, incumbent, sigma) else None


def _mean(trial: SeedScores, runs: int, skipped: int) -> float:
    """Mean of the first `runs` scores, without the `skipped` first ones."""
    return math.fsum((trial.first, *trial.fresh)[skipped:runs]) / (runs - skipped)


# -- The best after a decision: its chain of keeps, and the rivals of the incumbent.
#
# The incumbent is the oldest keep of the chain. The later ones are provisional, and the newest is the best.

MOST_STANDING = 100
"""Longest chain; beyond it the oldest keeps leave. Without retests a chain would grow for ever."""
MOST_RIVALS = 4
"""Discards that are run again once the keep that they lost to has fallen."""


def new_best(
    e: Experiment, value: float, best: Best | None, direction: Direction, code: str | None = None
) -> Best | None:
    """The best after a run of this value; None: the run does not change it. `code` is the id of its code."""
    if best and len(best.chain) < 2 and score(value, direction) >= score(best.val_bpb, direction):
        return None
    link = Link(
        experiment_id=e.experiment_id, val_bpb=value, commit_sha=e.commit_sha, code=code, trace_id=e.trace_id
    )
    if best is None or _beats(link, best, direction):
        # A rule that was changed meanwhile leaves the keeps that wait for their retests waiting.
        is_unsettled = best is not None and len(best.chain) > 1
        if e.judged_by == "strict" and not is_unsettled:
            # Rivals are there after a retraction: those that are still better go on with their retests.
            rivals = [rival for rival in best.rivals if _beats(rival, link, direction)] if best else []
            return _best([link], [link] if rivals else [], rivals, best)
        below = best.standing() if best else []
        return _best_of([*below, link][-MOST_STANDING:], best, direction)
    if len(best.chain) > 1 and _beats(link, best.chain[0], direction):
        rivals = _nearest([*best.rivals, link], direction)[:MOST_RIVALS]
        return best.model_copy(update={"rivals": rivals}) if rivals != best.rivals else None
    return None


def stands(best: Best, name: str, direction: Direction) -> Best:
    """The best when this keep becomes the incumbent; older keeps leave the chain."""
    place = [link.experiment_id for link in best.chain].index(name)
    return _best_of(best.chain[place:], best, direction)


def revalued(best: Best, name: str, value: float, direction: Direction) -> Best:
    """The best when this keep of the chain gets another value."""
    chain = [
        link.model_copy(update={"val_bpb": value}) if link.experiment_id == name else link
        for link in best.chain
    ]
    return _best_of(chain, best, direction)


def falls(best: Best, name: str, direction: Direction) -> Best:
    """The best without this keep of the chain."""
    left = [link for link in best.chain if link.experiment_id != name]
    return _best_of(left, best, direction)


def rises(best: Best, name: str) -> Best:
    """The best when this rival takes the incumbent's place."""
    link = next(rival for rival in best.rivals if rival.experiment_id == name)
    return _best([link], [link], [], best)


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


def _best_of(chain: list[Link], before: Best | None, direction: Direction) -> Best:
    """The best of this chain, with those rivals that still beat its incumbent."""
    rivals = before.rivals if before else []
    return _best(chain, chain, [rival for rival in rivals if _beats(rival, chain[0], direction)], before)


def _best(standing: list[Link], chain: list[Link], rivals: list[Link], before: Best | None = None) -> Best:
    """`before`: the best whose knowledge of seeds it takes over."""
    after = Best(**standing[-1].model_dump(), updated_at=0.0, chain=chain, rivals=rivals)
    return after.model_copy(update={"seeds": before.seeds}) if before else after


def _beats(one: Link, other: Link | Best, direction: Direction) -> bool:
    return score(one.val_bpb, direction) < score(other.val_bpb, direction)


def _nearest(links: Iterable[Link], direction: Direction) -> list[Link]:
    return sorted(links, key=lambda link: score(link.val_bpb, direction))
