"""What a seed does to every run alike is told apart from how far runs on one seed differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.experiments.rules.keeping import SeedScores, borne_out, falls, is_hopeless, new_best, restored
from functions.trust.rules.noise import pooled
from functions.trust.rules.retests import (
    Confirm,
    Contender,
    Demote,
    GiveUp,
    learned,
    own_noise,
    shift_of,
    with_pair,
)
from state.facts import Noise
from state.records import Seeds
from tests.functions.sample import experiment

SIGMA = 0.001
KNOWN = Noise(SIGMA, 20)
SMALL = st.floats(-3, 3).map(lambda sigmas: sigmas * SIGMA)
PAIRS = st.lists(st.tuples(SMALL, st.booleans()), max_size=30)
NOISES = st.builds(Noise, st.floats(0, 0.01), st.integers(1, 60))


def of(pairs: Sequence[tuple[float, bool]]) -> Seeds:
    """What these pairs, kept or not, have taught."""
    seeds = Seeds()
    for pair, is_kept in pairs:
        seeds = with_pair(seeds, SeedScores("one", 1.0, (1.0 + pair,)), Noise(1.0, 20), is_kept=is_kept)
    return seeds


def night(shared: float, codes: int, chance: np.random.Generator) -> tuple[Noise, Seeds]:
    """The noise of all repeats, and the seeds, after codes ran twice; a share of the variance is the seeds' own."""
    seed = math.sqrt(shared) * SIGMA * chance.normal(size=2)
    runs = 1.0 + seed + math.sqrt(1 - shared) * SIGMA * chance.normal(size=(codes, 2))
    noise = pooled(runs.tolist())
    assert noise is not None
    return noise, of([(float(second - first), True) for first, second in runs])


def test_what_a_seed_does_to_all_runs_is_no_noise_between_them() -> None:
    chance = np.random.default_rng(1)
    squares = [own_noise(*night(0.5, 20, chance)) for _ in range(300)]
    found = np.mean([each.sigma**2 for each in squares if each])
    assert found == pytest.approx(0.5 * SIGMA**2, rel=0.1)


@given(PAIRS, NOISES)
def test_the_noise_of_runs_on_one_seed_is_a_number_with_no_more_freedom_than_that_of_all(
    pairs: list[tuple[float, bool]], noise: Noise
) -> None:
    own = own_noise(noise, of(pairs))
    assert own is not None
    assert math.isfinite(own.sigma)
    assert own.sigma >= 0
    assert 1 <= own.df <= noise.df


@given(PAIRS, NOISES)
def test_nothing_is_said_before_two_kept_codes_ran(pairs: list[tuple[float, bool]], noise: Noise) -> None:
    one_kept = [(pair, is_kept and nth == 0) for nth, (pair, is_kept) in enumerate(pairs)]
    seeds = of(one_kept)
    assert shift_of(seeds) is None
    assert own_noise(noise, seeds) == noise
    assert own_noise(None, seeds) is None


BASE = Contender(SeedScores("base", 1.0, (1.001, 0.999)), "confirmed", is_baseline=True)
NEW = Contender(SeedScores("new", 0.998, (0.9985,)), "provisional")


def test_each_verdict_teaches_the_pair_of_runs_of_its_code() -> None:
    kept = learned(Confirm("new"), [BASE, NEW], [], Seeds(), KNOWN)
    assert (kept.pairs, kept.kept) == (2, 2)
    assert shift_of(kept) == pytest.approx(0.00075)
    assert kept.bar == pytest.approx((0.998 + 0.9985 - 0.00075) / 2)

    lucky = Contender(SeedScores("lucky", 0.9975, (0.9995,)), "provisional")
    after = learned(Demote("lucky"), [NEW, lucky], [], kept, KNOWN)
    assert (after.pairs, after.kept) == (3, 2)  # how far runs differ, and not what the seed does
    assert (shift_of(after), after.bar) == (shift_of(kept), kept.bar)

    own = Contender(SeedScores("own", 0.99), "provisional", trainable=False)
    assert learned(GiveUp("own"), [NEW, own], [], kept, KNOWN) == kept
    once, wrong = SeedScores("once", 1.0), SeedScores("went wrong", 1.0, (1.5,))
    for no_pair in (once, wrong, SeedScores("contradicted", 1.0, (1.1,), further=1.1)):
        assert with_pair(kept, no_pair, KNOWN, is_kept=True) == kept


def test_only_a_lead_on_both_runs_of_the_incumbent_is_worth_a_second_run() -> None:
    unlucky = borne_out(SeedScores("unlucky", 1.0, (0.998,)), 0.0)
    assert is_hopeless(0.9995, unlucky)
    assert is_hopeless(0.999, unlucky)
    assert not is_hopeless(0.9985, unlucky)
    assert not is_hopeless(0.9995, None)
    assert borne_out(SeedScores("once", 1.0), 0.0) is None


def test_what_was_learned_stays_with_the_best_until_a_result_is_taken_back() -> None:
    first = new_best(experiment(1, keep_rule="confirmed"), 1.0, None, "minimize")
    assert first is not None
    best = first.model_copy(update={"seeds": of([(0.0, True)] * 2)})

    after = new_best(experiment(2, keep_rule="confirmed"), 0.9, best, "minimize")
    assert after is not None
    fallen = falls(after, "mar11-2", "minimize")
    taken_back = restored(after, "mar11-2", [], [], "minimize")

    assert after.seeds == fallen.seeds == best.seeds
    assert taken_back is not None
    assert taken_back.seeds == first.seeds == Seeds()
