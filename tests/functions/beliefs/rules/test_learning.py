"""What is believed of a hypothesis after one more piece of evidence."""

from __future__ import annotations

import random
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.beliefs.rules.learning import (
    NEWEST,
    BeliefState,
    after,
    after_outside,
    after_run,
    after_test,
    effect,
    may_be_irrelevant,
)
from functions.beliefs.rules.terms import BeliefTerms
from state.records import Evidence, Hypothesis
from tests.functions.beliefs.rules.sample import hypothesis, influence, pair, reference, run

WIN, LOSS, TIE = pair(1.0, -2.0), pair(0.0, 2.0), pair(None, 0.0)
STOPPED = Evidence(experiment_id="s", outcome=0.2, against="stopped", worker_id="w1")
CRASH = Evidence(experiment_id="c", outcome=0.0, against="crash", worker_id="w1")
UNGUARDED = Evidence(experiment_id="b", outcome=1.0, against="baseline", is_guarded=False, delta=-1.0)
EVEN = hypothesis(alpha=20.0, beta=20.0)
EVERY_KIND = st.sampled_from([WIN, LOSS, TIE, STOPPED, CRASH, UNGUARDED])


def learned(*said: Evidence, start: Hypothesis | None = None) -> Hypothesis:
    return reduce(lambda known, each: after(known, each, now=9.0), said, start or hypothesis())


@given(said=st.lists(EVERY_KIND, max_size=60), seed=st.integers(0, 99))
def test_the_posterior_does_not_depend_on_the_order(said: list[Evidence], seed: int) -> None:
    shuffled = random.Random(seed).sample(said, len(said))
    one, other = learned(*said), learned(*shuffled)
    assert [one.alpha, one.beta] == pytest.approx([other.alpha, other.beta])
    for name in ("n_experiments", "wins", "losses", "stopped", "effects", "contrasts", "status"):
        assert getattr(one, name) == getattr(other, name)
    assert one.effect_mu == pytest.approx(other.effect_mu)
    assert one.contrast_m2 == pytest.approx(other.contrast_m2)


@given(said=st.lists(EVERY_KIND, max_size=120))
def test_each_outcome_is_one_run_of_the_beta(said: list[Evidence]) -> None:
    known = learned(*said)
    outcomes = [e.outcome for e in said if e.outcome is not None]
    assert known.alpha + known.beta == pytest.approx(4 + len(outcomes))
    assert known.n_experiments == len(outcomes)
    assert known.alpha == pytest.approx(2 + sum(outcomes))
    assert (known.evidence, known.wins) == (said[-NEWEST:], said.count(WIN))
    assert (known.losses, known.stopped) == (said.count(LOSS) + said.count(CRASH), said.count(STOPPED))


@pytest.mark.parametrize(
    ("said", "status", "settled"),
    [
        ([WIN] * 9, "active", None),
        ([WIN] * 10, "supported", None),
        ([WIN] * 12, "supported", "supported"),
        ([WIN] * 10 + [LOSS] * 4, "active", None),
        ([LOSS] * 9, "active", None),
        ([LOSS] * 11, "refuted", None),
        ([LOSS] * 12, "refuted", "refuted"),
        ([LOSS] * 10 + [WIN] * 4, "active", None),
        ([WIN, LOSS] * 20, "active", None),
        ([UNGUARDED] * 100, "supported", None),
        ([STOPPED] * 100, "refuted", None),
    ],
)
def test_a_status_needs_ten_outcomes(said: list[Evidence], status: str, settled: str | None) -> None:
    known = learned(*said)
    assert (known.status, known.settled, known.settled_at) == (status, settled, settled and 9.0)


def test_pairs_of_an_influence_wait_until_the_noise_is_known() -> None:
    before = BeliefState(influence(), unused=[reference()])
    waits = after_run(run(), before, BeliefTerms(), 9.0)
    known = after_run(run("swarm-3"), waits, BeliefTerms(sigma=0.01, usual_distance=0.005), 9.0)
    assert [len(state.waiting) for state in (waits, known)] == [1, 1]
    assert [state.hypothesis.n_experiments for state in (waits, known)] == [0, 1]


def test_an_influence_is_never_refuted() -> None:
    doubted = learned(*[LOSS] * 39, start=influence())
    assert (doubted.status, doubted.settled) == ("active", None)
    assert learned(*[WIN] * 12, start=influence()).settled == "supported"


def test_a_supported_verdict_stays_while_the_belief_moves() -> None:
    known = learned(*[WIN] * 12)
    doubted = learned(*[LOSS] * 12, start=known)
    later = after(known, WIN, now=11.0)
    assert (known.settled, known.status) == ("supported", "supported")
    assert (later.settled, later.settled_at) == ("supported", 9.0)
    assert (doubted.settled, doubted.status) == ("supported", "active")
    assert learned(*[LOSS] * 60, start=doubted).settled == "refuted"


def test_stopped_runs_that_count_against_it_keep_a_claim_from_being_settled() -> None:
    believed = learned(*[WIN] * 12, start=hypothesis(alpha=20.0, n_experiments=20, stopped=20))
    assert (believed.status, believed.settled) == ("supported", None)
    doubted = learned(*[LOSS] * 12, start=hypothesis(beta=20.0, n_experiments=20, stopped=20))
    assert (doubted.status, doubted.settled) == ("refuted", None)


@pytest.mark.parametrize(
    ("changes", "may_be"),
    [
        ({}, True),
        ({"wins": 2, "losses": 1}, True),
        ({"wins": 8, "losses": 1}, False),  # 0.92 for a share above 0.6
        ({"settled": "supported"}, False),
        ({"settled": "refuted"}, False),
    ],
)
def test_what_wins_or_is_settled_does_not_become_irrelevant(changes: dict[str, Any], may_be: bool) -> None:
    assert may_be_irrelevant(hypothesis(**changes)) == may_be


def test_twenty_undecided_results_are_a_penalty_and_a_sprint_of_twelve() -> None:
    undecided = learned(*[WIN, LOSS] * 9, WIN, start=EVEN)
    begun = learned(LOSS, start=undecided)
    ended = learned(*[WIN, LOSS] * 6, start=begun)
    again = learned(*[WIN, LOSS] * 9, start=ended)
    assert (undecided.allocation_penalty, undecided.sprint_left) == (1.0, 0)
    assert (begun.allocation_penalty, begun.sprint_left, begun.sprinted_at) == (0.5, 12, 20)
    assert (ended.allocation_penalty, ended.sprint_left, ended.sprints) == (0.5, 0, 1)
    assert (again.sprints, again.sprinted_at, again.sprint_left) == (2, 50, 12)


def test_the_penalty_is_lifted_once_the_claim_is_decided() -> None:
    undecided = learned(*[WIN, LOSS] * 10, start=EVEN)
    better = learned(*[WIN] * 8, start=undecided)
    decided = learned(*[WIN] * 40, start=undecided)
    assert (better.allocation_penalty, better.uncertain_streak) == (0.5, 0)
    assert decided.allocation_penalty == 1.0


def test_effects_have_means_and_standard_errors_beside_the_reference_and_the_constraint() -> None:
    known = learned(pair(1.0, -3.0), pair(0.0, 1.0), CRASH)
    known = after_outside(after_outside(known, 2.0), 4.0)
    found = effect(known)
    assert (found.effect_mu, found.contrast_mu, found.inside_mu) == (-1.0, -1.0, -4.0)
    assert [found.effect_sem, found.contrast_sem] == pytest.approx([2.0, 2.0])
    assert found.inside_sem == pytest.approx(5**0.5)
    assert set(vars(effect(hypothesis())).values()) == {None}
    assert effect(learned(WIN)).effect_sem is None


@pytest.mark.parametrize(("outcome", "verdict"), [(1.0, "supported"), (0.0, "refuted")])
def test_a_whole_test_is_one_vote_and_ends_the_hypothesis(outcome: float, verdict: str) -> None:
    vote = Evidence(experiment_id="t", outcome=outcome, against="test")
    known = after_test(hypothesis(phase="validation"), vote, now=9.0)
    assert (known.status, known.settled, known.settled_at) == (verdict, verdict, 9.0)
    assert (known.alpha, known.beta, known.n_experiments) == (2 + outcome, 3 - outcome, 1)
    assert known.evidence == [vote]
