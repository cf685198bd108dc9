"""What is wrong with a GPU, and what a reader sees before the sweep has written it."""

from __future__ import annotations

from typing import Any

import pytest

from functions.rules.health import complaint, effective_status, is_stale
from functions.rules.pool_views import pool_counts, worker_view
from tests.functions.rules.sample import gpu


def test_silence_is_counted_from_the_last_heartbeat_inclusive() -> None:
    assert not is_stale(100.0, 159.9, 60)
    assert is_stale(100.0, 160.0, 60)


@pytest.mark.parametrize("status", ["idle", "training", "draining", "unhealthy"])
def test_a_silent_gpu_is_offline_for_every_reader(status: str) -> None:
    silent = gpu(status=status, heartbeat_at=0.0)

    assert effective_status(silent, 61.0, 60) == "offline"
    assert effective_status(silent, 59.0, 60) == status
    assert worker_view(silent, 61.0, 60)["status"] == "offline"
    assert pool_counts([silent], 61.0, 60)["offline"] == 1


@pytest.mark.parametrize(
    ("health", "word"),
    [
        ({}, None),
        ({"temperature_c": 90.0}, None),
        ({"temperature_c": 90.5}, "90.5 °C"),
        ({"ecc": 0}, None),
        ({"ecc": 2}, "2 uncorrected"),
        ({"error": "GPU is lost"}, "GPU is lost"),
        ({"error": "", "temperature_c": 40}, None),
    ],
)
def test_a_sample_is_judged(health: dict[str, Any], word: str | None) -> None:
    found = complaint(gpu(health=health, sampled_at=100.0), 110.0, stale_s=60, temperature_limit_c=90)

    assert (found is None) if word is None else (found is not None and word in found)


def test_an_old_sample_is_a_complaint_and_none_at_all_is_not() -> None:
    assert complaint(gpu(sampled_at=0.0), 60.0, stale_s=60, temperature_limit_c=90) == "no sample for 60 s"
    assert complaint(gpu(), 1e9, stale_s=60, temperature_limit_c=90) is None


def test_counts_add_up_to_the_total() -> None:
    gpus = [
        gpu(f"g{n}", status=s, heartbeat_at=50.0)
        for n, s in enumerate(["idle", "idle", "training", "unhealthy"])
    ]

    counts = pool_counts(gpus, 60.0, 60)

    assert counts == {"total": 4, "idle": 2, "training": 1, "draining": 0, "offline": 0, "unhealthy": 1}
