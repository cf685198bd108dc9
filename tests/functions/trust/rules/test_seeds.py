"""What a seed does to every run alike is told apart from how far runs on one seed differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
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


def test_where_seeds_do_nothing_the_noise_is_what_all_repeats_say() -> None:
    chance = np.random.default_rng(2)
    nights = [night(0.0, 20, chance) for _ in range(300)]
    ratios = [own.sigma / noise.sigma for noise, seeds in nights if (own := own_noise(noise, seeds))]
    assert np.mean(ratios) == pytest.approx(1, abs=0.02)
    assert np.std(ratios) < 0.05


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


@given(PAIRS, st.sampled_from([1e-6, 1e3, -1.0]))
def test_another_unit_or_direction_changes_the_noise_by_its_size_and_the_shift_by_it(
    pairs: list[tuple[float, bool]], factor: float
) -> None:
    same, other = of_exactly(pairs), of_exactly([(pair * factor, is_kept) for pair, is_kept in pairs])
    noise = Noise(SIGMA, len(pairs) + 1)

    own, others = own_noise(noise, same), own_noise(Noise(SIGMA * abs(factor), noise.df), other)

    assert own is not None
    assert others is not None
    assert others.sigma == pytest.approx(own.sigma * abs(factor), rel=1e-6)
    shift, otherwise = shift_of(same), shift_of(other)
    assert (shift is None) == (otherwise is None)
    assert otherwise is None or otherwise == pytest.approx((shift or 0.0) * factor)


@given(PAIRS, st.floats(-5, 5).map(lambda sigmas: sigmas * SIGMA))
def test_a_constant_moves_the_shift_and_no_noise(pairs: list[tuple[float, bool]], constant: float) -> None:
    assume(sum(is_kept for _, is_kept in pairs) >= 2)
    seeds, moved = of_exactly(pairs), of_exactly([(pair + constant, is_kept) for pair, is_kept in pairs])
    noise = Noise(SIGMA, len(pairs) + 1)

    own, others = own_noise(noise, seeds), own_noise(noise, moved)

    assert own is not None
    assert others is not None
    assert others.sigma == pytest.approx(own.sigma, rel=1e-4)
    assert shift_of(moved) == pytest.approx((shift_of(seeds) or 0.0) + constant, abs=1e-12)


def of_exactly(pairs: Sequence[tuple[float, bool]]) -> Seeds:
    """These pairs without the rounding that values near 1 bring."""
    kept = [pair for pair, is_kept in pairs if is_kept]
    return Seeds(
        pairs=len(pairs),
        total=math.fsum(pair for pair, _ in pairs),
        squares=math.fsum(pair * pair for pair, _ in pairs),
        kept=len(kept),
        kept_total=math.fsum(kept),
    )


def test_a_retest_that_went_wrong_says_nothing_of_the_seeds() -> None:
    seeds = of([(0.1 * SIGMA, True)] * 3)
    after = with_pair(seeds, SeedScores("broken", 1.0, (1.5,)), KNOWN, is_kept=False)
    assert after == seeds


@pytest.mark.parametrize(
    "trial",
    [SeedScores("once", 1.0), SeedScores("contradicted", 1.0, (1.1,), further=1.1)],
    ids=lambda t: t.name,
)
def test_code_that_has_one_run_to_go_by_is_no_pair(trial: SeedScores) -> None:
    assert with_pair(Seeds(), trial, KNOWN, is_kept=True) == Seeds()


BASE = Contender(SeedScores("base", 1.0, (1.001, 0.999)), "confirmed", is_baseline=True)
NEW = Contender(SeedScores("new", 0.998, (0.9985,)), "provisional")


def test_a_confirmed_keep_teaches_its_pair_and_with_the_first_the_baselines() -> None:
    seeds = learned(Confirm("new"), [BASE, NEW], [], Seeds(), KNOWN)
    assert (seeds.pairs, seeds.kept) == (2, 2)
    assert shift_of(seeds) == pytest.approx(0.00075)
    assert seeds.bar == pytest.approx((0.998 + 0.9985 - 0.00075) / 2)


def test_a_demoted_keep_says_how_far_runs_differ_but_not_what_the_seed_does() -> None:
    before = learned(Confirm("new"), [BASE, NEW], [], Seeds(), KNOWN)
    lucky = Contender(SeedScores("lucky", 0.9975, (0.9995,)), "provisional")
    after = learned(Demote("lucky"), [NEW, lucky], [], before, KNOWN)
    assert (after.pairs, after.kept) == (3, 2)
    assert shift_of(after) == shift_of(before)
    assert after.bar == before.bar


def test_what_cannot_run_again_teaches_nothing() -> None:
    before = learned(Confirm("new"), [BASE, NEW], [], Seeds(), KNOWN)
    own = Contender(SeedScores("own", 0.99), "provisional", trainable=False)
    assert learned(GiveUp("own"), [NEW, own], [], before, KNOWN) == before


@given(SMALL, SMALL, st.floats(-0.01, 0.01))
def test_both_runs_bear_out_half_way_to_the_second(first: float, second: float, shift: float) -> None:
    bar = borne_out(SeedScores("one", first, (second,)), shift)
    assert bar is not None
    assert bar - first == pytest.approx((second - shift - first) / 2, abs=1e-12)


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
