"""A simulated swarm has something to find, and its server's mistakes are found."""

from __future__ import annotations

import math
from random import Random
from statistics import mean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.swarm.rules.simulating import NOISE, PLANTED, Faults, fate, simulate_metric
from functions.trust.rules.audit_tags import Acknowledged, ShownRun, lost, miscounted

CONFIGS = st.dictionaries(
    st.sampled_from([*PLANTED, "OTHER"]),
    st.floats(1e-9, 1e9) | st.integers(-5, 10**6) | st.booleans() | st.sampled_from(["adam", "sgd", "SSL"]),
)


@given(CONFIGS, st.floats(0, 1.5), st.integers())
def test_every_metric_is_finite_and_positive(config: dict[str, Any], progress: float, seed: int) -> None:
    value = simulate_metric(config, progress, Random(seed))
    assert math.isfinite(value)
    assert value > 0


def test_two_runs_of_a_config_differ_by_the_noise_and_a_seed_repeats_one() -> None:
    config = {"LR": 0.002}
    values = [simulate_metric(config, 1.0, Random(seed)) for seed in range(500)]
    assert simulate_metric(config, 1.0, Random(7)) == values[7]
    assert mean(values) == pytest.approx(simulate_metric(config, 1.0), abs=NOISE / 5)
    assert stdev(values) == pytest.approx(NOISE, rel=0.15)


def test_crashes_and_stragglers_come_at_their_rates_and_never_together() -> None:
    rng = Random(1)
    fates = [fate(Faults(), rng) for _ in range(20_000)]
    assert mean(its.crashes_at is not None for its in fates) == pytest.approx(0.03, abs=0.005)
    assert mean(its.is_late for its in fates) == pytest.approx(0.05, abs=0.006)
    assert not any(its.is_late and its.crashes_at is not None for its in fates)


MEASURED = Acknowledged("w1", 0.9)
CRASHED = Acknowledged("w1", None)
STOPPED = Acknowledged("w2", None, is_stopped=True)


@pytest.mark.parametrize(
    ("sent", "stored", "are_lost"),
    [
        *((MEASURED, ShownRun(status, 0.9), 0) for status in ("keep", "discard")),
        *((CRASHED, ShownRun(status, None), 0) for status in ("crash", "timeout")),
        (STOPPED, ShownRun("stopped", None), 0),
        (MEASURED, None, 1),
        *((MEASURED, ShownRun(status, None), 1) for status in ("lost", "running", "stopped")),
        (MEASURED, ShownRun("keep", 0.91), 1),
        (CRASHED, ShownRun("lost", None), 1),
        (STOPPED, ShownRun("keep", 0.9), 1),
    ],
)
def test_a_result_that_is_missing_or_stored_otherwise_than_acknowledged_is_lost(
    sent: Acknowledged, stored: ShownRun | None, are_lost: int
) -> None:
    assert len([*lost({"r": sent}, {} if stored is None else {"r": stored})]) == are_lost


@pytest.mark.parametrize(("experiments", "of_w1", "differences"), [(3, 2, [1, 1]), (1, 0, [-1, -1])])
def test_a_result_counted_twice_or_not_is_found(experiments: int, of_w1: int, differences: list[int]) -> None:
    found = [*miscounted({"a": MEASURED, "c": STOPPED}, experiments, {"w1": of_w1})]
    assert [difference for difference, _ in found] == differences
