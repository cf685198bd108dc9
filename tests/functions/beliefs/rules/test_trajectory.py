"""The posterior of a hypothesis, one piece of evidence after the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.beliefs.rules.learning import NEWEST, after
from functions.beliefs.rules.posterior import posterior_of, trajectory
from state.records import Evidence
from tests.functions.beliefs.rules.sample import hypothesis, pair

STOPPED = Evidence(experiment_id="s", outcome=0.2, against="stopped", worker_id="w1")
KINDS = [pair(1.0, -2.0), pair(0.0, 2.0), pair(None, 0.0), STOPPED]


@given(said=st.lists(st.sampled_from(KINDS), max_size=70))
def test_the_way_back_finds_each_posterior_that_there_was(said: list[Evidence]) -> None:
    known = [hypothesis()]
    for each in said:
        known.append(after(known[-1], each, now=9.0))

    start, steps = trajectory(known[-1])

    was = known[-1 - len(steps) :]
    assert len(steps) == min(len(said), NEWEST)
    assert [each for each, _ in steps] == said[-NEWEST:]
    points = [start, *(point for _, point in steps)]
    assert [p.n for p in points] == [h.n_experiments for h in was]
    assert [p.mean for p in points] == pytest.approx([h.alpha / (h.alpha + h.beta) for h in was])
    low, high = posterior_of(was[0].alpha, was[0].beta).credible_interval_90
    assert (start.low, start.high) == pytest.approx((low, high))
