"""How often beliefs are wrong: `bench/beliefs.py` on fewer claims, in wider bounds."""

from __future__ import annotations

import numpy as np
import pytest

from bench.beliefs import (
    LUCKY,
    MOST,
    REFUTED,
    SHAPES,
    SUPPORTED,
    FigureTable,
    Lives,
    Ruled,
    irrelevance,
    irrelevant_after,
    normal_pairs,
    stopped_runs,
)
from functions.beliefs.rules.evidence import outcome_of, pairs
from functions.beliefs.rules.learning import after
from functions.beliefs.rules.terms import BeliefTerms
from tests.functions.beliefs.rules.sample import hypothesis, reference, run

CLAIMS = 2000


def chance() -> np.random.Generator:
    return np.random.default_rng(60)


def test_few_claims_of_which_nothing_is_true_are_settled_however_often_they_are_looked_at() -> None:
    ruled, lives = Ruled.table(), Lives.of(normal_pairs(chance(), CLAIMS))
    refuted, supported = (lives.first(ruled.verdict, code) <= MOST for code in (REFUTED, SUPPORTED))
    assert 0 < refuted.mean() <= 0.035
    assert 0 < supported.mean() <= 0.035
    assert (refuted | supported).mean() <= 0.06


def test_a_claim_that_wins_three_of_four_is_supported_within_thirty_runs() -> None:
    lives = Lives.of(np.where(chance().random((CLAIMS, MOST)) < 0.75, -1.0, 1.0))
    assert np.median(lives.first(Ruled.table().status, SUPPORTED)) <= 30


def test_only_dimensions_without_an_effect_are_irrelevant() -> None:
    report = FigureTable()
    irrelevance(report, chance(), 60)
    assert report.missed == []
    assert irrelevant_after(chance(), SHAPES["none"]) <= MOST


def test_a_win_share_is_read_as_it_is_while_the_worst_runs_are_stopped() -> None:
    report = FigureTable()
    stopped_runs(report, chance(), 1)
    assert report.missed == []


@pytest.mark.parametrize("side", [LUCKY, -LUCKY])
def test_a_worker_with_a_lucky_baseline_decides_nothing_by_itself(side: float) -> None:
    known = hypothesis()
    waiting = [run(f"c{k}", worker_id="lucky", judged=side) for k in range(40)]
    unused = [reference(f"r{k}", worker_id=f"w{k}") for k in range(40)]
    for pair in pairs(waiting, unused, known):
        said = outcome_of(pair[0], known, BeliefTerms(workers=10), pair[1])
        assert said is not None
        known = after(known, said, now=9.0)
    assert (known.n_experiments, known.status) == (1, "active")
