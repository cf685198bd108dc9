"""Settling: what stands, falls and rises between an incumbent, the keeps on top of it and their rivals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench._tag import KeepingTag
from functions.experiments.rules.keeping import SeedScores
from functions.trust.rules.noise import cautious
from functions.trust.rules.retests import (
    PASSED,
    SEED_STEP,
    SPARE,
    Confirm,
    Contender,
    Demote,
    Dismiss,
    Effort,
    GiveUp,
    Promote,
    RunAgain,
    Step,
    due_step,
    next_seed,
)
from state.facts import Noise
from state.records import Direction, Trust

SIGMA = 0.001
ONCE = Effort(baseline_repeats=2, max_retests=2)


@dataclass(frozen=True)
class First:
    """An experiment's first run is over."""

    value: float
    trainable: bool
    keep_rule: str = "confirmed"


@dataclass(frozen=True)
class Again:
    """One of the retests that wait, by its place modulo how many there are, is over."""

    place: int
    outcome: float | Literal["broke", "lost"]


Play = list[First | Again]

VALUES = st.integers(-30, 30).map(lambda n: 1 + n * 2e-4)  # some are equal
FAILURES: st.SearchStrategy[Literal["broke", "lost"]] = st.sampled_from(["broke", "lost"])
KEEP_RULES = st.sampled_from(["confirmed"] * 9 + ["strict"])
FIRSTS = st.builds(First, VALUES, st.sampled_from([True, True, True, False]), KEEP_RULES)
AGAINS = st.builds(Again, st.integers(0, 9), st.one_of(VALUES, VALUES, VALUES, FAILURES))
PLAYS: st.SearchStrategy[Play] = st.lists(st.one_of(FIRSTS, AGAINS), min_size=1, max_size=30)
EFFORTS = st.builds(Effort, st.integers(0, 3), st.integers(0, 3), st.integers(1, 5))


@pytest.fixture(scope="module", autouse=True)
def scipy_is_there() -> None:
    """The first probability takes a second, which is no example's fault."""
    cautious(Noise(1.0, 1), 4.0)


def played(tag: KeepingTag, play: Play) -> Iterator[Step]:
    """What happens to the tag, step by step; in the end all retests that wait are over, too."""
    ends = [move for move in play if isinstance(move, Again)] or [Again(0, "lost")]
    for nth, move in enumerate(play, 1):
        if isinstance(move, First):
            tag.keep_rule = move.keep_rule
            tag.complete(f"e{nth}", move.value, move.trainable)
        elif tag.waiting:
            _end(tag, move)
        yield from _settled(tag)
    nth = 0
    while tag.waiting:
        _end(tag, ends[nth % len(ends)])
        yield from _settled(tag)
        nth += 1


def _end(tag: KeepingTag, move: Again) -> None:
    place = move.place % len(tag.waiting)
    retest = tag.waiting[place]
    del tag.waiting[place]
    tag.end(retest, move.outcome)


def _settled(tag: KeepingTag) -> Iterator[Step]:
    while (step := tag.due_step()) is not None:
        tag.take(step)
        yield step


def is_allowed(tag: KeepingTag, step: Step) -> None:
    """It runs again only as often as is owed and a few times more; code that fails on another seed does not stand."""
    if isinstance(step, Confirm | Promote):
        assert not tag.contender(step.name).broke
    if isinstance(step, RunAgain):
        tried = tag.tried[step.name]
        once = min(1, tag.effort.max_retests)
        owed = once * max(1, tag.effort.baseline_repeats) if tried.is_baseline else once
        assert tried.trainable
        assert len(tried.retests) <= owed + SPARE * bool(owed)
        assert sum(isinstance(r.outcome, float) or r.outcome == "open" for r in tried.retests) <= owed


def is_at_rest(tag: KeepingTag) -> None:
    """Nothing waits, and nobody stands on the incumbent who could be compared with what is under him."""
    assert not any(retest.outcome == "open" for tried in tag.tried.values() for retest in tried.retests)
    assert "provisional" not in [tried.trust for tried in tag.tried.values()]
    if tag.best is None:
        return
    chain = [tag.contender(link.experiment_id) for link in tag.best.chain]
    for place, keep in enumerate(chain[1:], 1):
        assert keep.trust == "unconfirmed"
        assert not (keep.is_tested and any(under.is_tested for under in chain[:place]))
    racing = [*chain, *(tag.contender(link.experiment_id) for link in tag.best.rivals)]
    awaits_agent = any(not each.trainable and not each.is_tested for each in racing)
    assert len(chain) > 1 or not tag.best.rivals or awaits_agent


@given(PLAYS, EFFORTS, st.sampled_from(["minimize", "maximize"]))
def test_whatever_is_played_each_step_is_allowed_and_taken_once_and_in_the_end_nothing_waits(
    play: Play, effort: Effort, direction: Direction
) -> None:
    tag, taken = KeepingTag("confirmed", effort, direction), Counter[Step]()

    for step in played(tag, play):
        is_allowed(tag, step)
        taken[step] += not isinstance(step, RunAgain | Dismiss)

    assert set(taken.values()) <= {0, 1}
    is_at_rest(tag)


@given(st.integers(0, 100), st.none() | st.integers(0, 200 * SEED_STEP))
def test_every_retest_has_a_seed_of_its_own(retests: int, own: int | None) -> None:
    seeds: list[int] = []
    for _ in range(retests):
        seeds.append(next_seed(own, seeds))
    assert len({*seeds, own}) == retests + 1
    assert seeds == sorted(seeds)
    assert next_seed(SEED_STEP, [2 * SEED_STEP]) == 3 * SEED_STEP


# -- each step


def the(
    name: str,
    first: float,
    *fresh: float,
    trust: Trust | None = "confirmed",
    started: int | None = None,
    under_way: int = 0,
    broke: bool = False,
    trainable: bool = True,
    is_baseline: bool = False,
) -> Contender:
    """Somebody with his values in sigmas."""
    return Contender(
        SeedScores(name, first * SIGMA, tuple(value * SIGMA for value in fresh)),
        trust,
        len(fresh) + under_way if started is None else started,
        under_way,
        broke,
        trainable,
        is_baseline,
    )


def keep(name: str, first: float, *fresh: float, under_way: int = 0, broke: bool = False) -> Contender:
    """A keep that waits for its verdict."""
    return the(name, first, *fresh, trust="provisional", under_way=under_way, broke=broke)


def rival(name: str, first: float, *fresh: float, under_way: int = 0, broke: bool = False) -> Contender:
    return the(name, first, *fresh, trust=None, under_way=under_way, broke=broke)


OLD = the("old", 0, 0)


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ([the("base", 0, is_baseline=True)], RunAgain("base")),
        ([the("base", 0, 0, is_baseline=True)], RunAgain("base")),
        ([the("base", 0, 0, 0, is_baseline=True)], None),
        ([the("base", 0, under_way=2, is_baseline=True)], None),
        ([the("base", 0, started=4, is_baseline=True)], None),
        ([the("base", 0, trainable=False, is_baseline=True)], None),
        ([the("base", 0, 0, broke=True, is_baseline=True)], None),
        ([the("sure", 0)], None),
    ],
)
def test_a_baseline_runs_until_its_noise_is_known(chain: list[Contender], expected: Step | None) -> None:
    assert due_step(chain, [], SIGMA, ONCE) == expected


def contradicted(contender: Contender) -> Contender:
    """One whose fresh runs are its further runs, too far from the first for noise."""
    trial = contender.trial
    return replace(contender, trial=replace(trial, further=trial.claimed))


def by_others(contender: Contender) -> Contender:
    """One whose first run only other experiments of its code contradict: they are far better."""
    return replace(contender, trial=replace(contender.trial, further=-60 * SIGMA))


@pytest.mark.parametrize(
    ("on_top", "expected"),
    [
        ([the("sure", -9)], Demote("sure", PASSED)),
        ([keep("two", -2, -2)], Demote("two", PASSED)),
        ([keep("two", -2, under_way=1)], Demote("two", PASSED)),
        ([the("better", -60)], Confirm("one")),
        ([the("better", -60), the("best", -70)], Confirm("one")),
        ([contradicted(keep("other", -2, -60))], Confirm("one")),
        ([contradicted(keep("other", -2, -60, under_way=1))], None),
        ([contradicted(keep("other", -2, -60)), the("sure", -9)], Demote("sure", PASSED)),
        ([by_others(keep("other", -2))], RunAgain("other")),
        ([by_others(the("other", -2, trust="provisional", started=3))], Demote("other", PASSED)),
        ([by_others(the("other", -2, trust="unconfirmed", trainable=False))], Demote("other", PASSED)),
        ([contradicted(the("lucky", -60, -9))], Confirm("one")),
    ],
)
def test_keeps_above_fall_before_one_worth_more(on_top: list[Contender], expected: Step | None) -> None:
    one = contradicted(keep("one", -1, -50))
    assert due_step([OLD, one, *on_top], [], SIGMA, ONCE) == expected
    assert due_step([one, *on_top], [], SIGMA, ONCE) == expected


UNLUCKY = the("old", 0, -1)
"""Worth half a sigma less than its first run, where the second seed shifts nothing."""


@pytest.mark.parametrize(
    ("chain", "shift", "expected"),
    [
        ([UNLUCKY, keep("new", -0.4)], 0.0, Demote("new")),
        ([UNLUCKY, keep("new", -0.6)], 0.0, RunAgain("new")),
        ([UNLUCKY, keep("new", -0.4)], None, RunAgain("new")),  # it is not known what the seed does
        ([UNLUCKY, keep("new", -0.4)], -1.0, RunAgain("new")),  # the second seed flatters everyone
        ([UNLUCKY, keep("new", -0.4, under_way=1)], 0.0, None),
        ([UNLUCKY, keep("new", -0.4, -1.6)], 0.0, Confirm("new")),
        ([the("old", 0), keep("new", -0.4)], 0.0, RunAgain("new")),
        ([UNLUCKY, the("own", -0.4, trust="unconfirmed", trainable=False)], 0.0, None),
        ([UNLUCKY, keep("one", -0.6, under_way=1), keep("two", -0.7)], 0.0, RunAgain("two")),
        ([OLD, keep("one", -1, -3), keep("two", -1.5)], 0.0, Demote("two")),
    ],
)
def test_what_beats_no_more_than_an_unlucky_first_run_falls_without_a_second(
    chain: list[Contender], shift: float | None, expected: Step | None
) -> None:
    assert due_step(chain, [], SIGMA, ONCE, None if shift is None else shift * SIGMA) == expected


SELF_TRAINED = the("own", -1, trust="unconfirmed", trainable=False)


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        # a keep stands or falls by its second run and the incumbent's
        ([OLD, keep("new", -1)], RunAgain("new")),
        ([the("old", 0), keep("new", -1, under_way=1)], RunAgain("old")),
        ([OLD, keep("new", -1, under_way=1)], None),
        ([OLD, the("new", -1, trust="provisional", started=2)], RunAgain("new")),
        ([OLD, the("new", -1, trust="provisional", started=3)], GiveUp("new")),
        ([the("old", 0, under_way=1), keep("new", -1, -1)], None),
        ([OLD, keep("new", -1, -0.1)], Confirm("new")),
        ([OLD, keep("new", -1, 0.1)], Demote("new")),
        ([OLD, keep("new", -1, broke=True)], Demote("new")),
        (
            [OLD, contradicted(keep("new", -1, 5, under_way=1))],
            Demote("new"),
        ),  # whatever its other run measures
        ([the("old", 0, broke=True), keep("new", -1, 5)], Confirm("new")),
        ([OLD, the("sure", -9)], Confirm("sure")),
        ([OLD, the("sure", -9, broke=True)], Demote("sure")),
        # keeps that stand on each other are settled from below
        ([OLD, keep("one", -1, under_way=1), keep("two", -2)], RunAgain("two")),
        ([OLD, keep("one", -1, under_way=1), keep("two", -2, -2)], None),
        ([OLD, keep("one", -1, 3), keep("two", -2, -2)], Demote("one")),
        ([OLD, keep("one", -1, -1), keep("two", -2, -2)], Confirm("one")),
        ([the("one", -1, -1), keep("two", -2, -0.1)], Demote("two")),
        ([OLD, keep("one", -1, under_way=1), the("sure", -9)], None),
        # what no worker can run again stays unconfirmed until its agent runs it again
        ([OLD, SELF_TRAINED], None),
        ([the("base", 0, trainable=False, is_baseline=True), SELF_TRAINED], None),
        ([OLD, SELF_TRAINED, keep("new", -2)], RunAgain("new")),
        ([OLD, SELF_TRAINED, keep("new", -2, -2)], Confirm("new")),
        ([OLD, SELF_TRAINED, keep("new", -2, 2)], Demote("new")),
        ([the("old", 0, trainable=False), keep("new", -1, under_way=1)], None),
        ([the("old", 0, trainable=False), keep("new", -1, -1)], GiveUp("new")),
        ([the("old", 0, trainable=False), the("new", -1, -1, trust="unconfirmed")], None),
        ([OLD, the("own", -1, -1, trust="unconfirmed", trainable=False)], Confirm("own")),
    ],
)
def test_the_next_step_of_a_chain(chain: list[Contender], expected: Step | None) -> None:
    assert due_step(chain, [], SIGMA, ONCE) == expected


@pytest.mark.parametrize(
    ("incumbent", "rivals", "expected"),
    [
        (OLD, [rival("a", -2), rival("b", -1)], RunAgain("a")),
        (OLD, [rival("a", -2, under_way=1), rival("b", -1)], RunAgain("b")),
        (the("old", 0), [rival("a", -2, -2)], RunAgain("old")),
        (OLD, [rival("a", -2, under_way=1)], None),
        (OLD, [rival("a", -2, -1)], Promote("a")),
        (OLD, [rival("a", -2, 3), rival("b", -1, -1)], Promote("b")),
        (OLD, [rival("a", -2, 3), rival("b", -1, 1)], Dismiss()),
        (OLD, [rival("a", -2, broke=True)], Dismiss()),
        (OLD, [rival("a", -2, -2, broke=True)], Dismiss()),
        (OLD, [the("own", -2, trust=None, trainable=False)], None),  # its agent may run it again
        (the("old", 0, trainable=False), [rival("a", -2, -2)], None),
        (the("old", 0, broke=True), [rival("a", -2, 9), rival("b", -1, -1)], Promote("b")),
        (the("old", 0, broke=True), [rival("a", -2, -9, broke=True)], Dismiss()),
    ],
)
def test_a_rival_rises_by_a_win(incumbent: Contender, rivals: list[Contender], expected: Step | None) -> None:
    assert due_step([incumbent], rivals, SIGMA, ONCE) == expected


NEVER, SPENT = replace(ONCE, max_retests=0), replace(ONCE, may_run=False)


@pytest.mark.parametrize(
    ("effort", "chain", "rivals", "expected"),
    [
        # rivals wait until the keep that beat them has fallen
        (ONCE, [OLD, keep("new", -3, under_way=1)], [rival("a", -2)], None),
        # nothing runs again where no retests are allowed
        (NEVER, [the("base", 0, is_baseline=True)], [], None),
        (NEVER, [the("old", 0), keep("new", -1)], [], GiveUp("new")),
        (NEVER, [the("old", 0)], [rival("a", -1)], Dismiss()),
        # a budget without room leaves verdicts that are earned
        (SPENT, [OLD, keep("new", -1, 1)], [], Demote("new")),
        (SPENT, [OLD, keep("new", -1)], [], None),
        (SPENT, [the("old", 0), keep("new", -1, -1)], [], None),
        (SPENT, [OLD, contradicted(keep("one", -1, -50)), by_others(keep("other", -2))], [], None),
    ],
)
def test_what_may_not_run_or_waits(
    effort: Effort, chain: list[Contender], rivals: list[Contender], expected: Step | None
) -> None:
    assert due_step(chain, rivals, SIGMA, effort) == expected
