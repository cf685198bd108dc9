"""Problems of a GPU, and its status before the sweep."""

from __future__ import annotations

from typing import Any

import pytest

from functions.pool.rules.health import (
    FlagChange,
    complaint,
    effective_status,
    is_memory_back,
    is_stale,
    judge_sample,
    pool_counts,
    worker_view,
)
from state.records import Footprint, Gpu
from tests.functions.sample import gpu


@pytest.mark.parametrize("status", ["idle", "training", "draining", "unhealthy"])
def test_a_silent_gpu_is_offline_for_every_reader(status: str) -> None:
    silent = gpu(status=status, heartbeat_at=0.0)
    assert [is_stale(0.0, now, 60) for now in (59.9, 60.0)] == [False, True]
    assert [effective_status(silent, now, 60) for now in (61.0, 59.0)] == ["offline", status]
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
        ({"xid": 79}, "Xid error 79"),
        ({"disk_free_mb": 1024.0}, None),
        ({"disk_free_mb": 1023.0}, "1023 MB free, under the least of 1024 MB"),
    ],
)
def test_a_sample_is_judged(health: dict[str, Any], word: str | None) -> None:
    found = told_of(gpu(health=health, sampled_at=100.0), 110.0)
    assert (found is None) if word is None else (found is not None and word in found)


def test_an_old_sample_is_a_complaint_and_none_at_all_is_not() -> None:
    assert told_of(gpu(sampled_at=0.0), 60.0) == "no sample for 60 s"
    assert told_of(gpu(), 1e9) is None


def told_of(found: Gpu, now: float) -> str | None:
    return complaint(found, now, stale_s=60)


OURS, THEIRS, NEWCOMER = 10, 20, 30


@pytest.mark.parametrize(
    ("before", "now", "is_back"),
    [
        ((100, None), (100, None), True),
        ((100, None), (164, None), True),
        ((100, None), (165, None), False),
        ((5000, None), (100, None), True),
        ((100, {}), (700, {}), False),
        ((100, {}), (700, {OURS: 600}), False),
        ((900, {THEIRS: 800}), (900, {THEIRS: 800}), True),
        ((900, {THEIRS: 800}), (9900, {THEIRS: 9800}), True),
        ((900, {THEIRS: 800}), (10_500, {THEIRS: 9800, OURS: 600}), False),
        ((900, {THEIRS: 800}), (100, {}), True),
        ((900, {THEIRS: 800}), (700, {OURS: 600}), False),
        ((100, {}), (900, {NEWCOMER: 800}), True),
        ((900, {THEIRS: 800}), (9900, None), False),
        ((900, None), (900, {THEIRS: 800}), True),
    ],
)
def test_memory_is_back_when_nothing_is_held_but_by_others(
    before: tuple[float, dict[int, float] | None], now: tuple[float, dict[int, float] | None], is_back: bool
) -> None:
    earlier, later = (Footprint(used_mb=mb, processes=held) for mb, held in (before, now))
    found = is_memory_back(earlier, later, strangers={THEIRS, NEWCOMER}, tolerance_mb=64)
    assert found == is_back


def test_counts_add_up_to_the_total() -> None:
    statuses = ("idle", "idle", "training", "unhealthy")
    gpus = [gpu(f"g{n}", status=s, heartbeat_at=50.0) for n, s in enumerate(statuses)]
    counts = pool_counts(gpus, 60.0, 60)
    assert counts == {"total": 4, "idle": 2, "training": 1, "draining": 0, "offline": 0, "unhealthy": 1}


def test_a_sick_gpu_is_healthy_again_after_enough_good_samples_in_a_row() -> None:
    sick = gpu(sick="hot")
    assert judge_sample(gpu(), None) is None
    assert judge_sample(sick, None) == FlagChange("a good sample", {"good_samples": 1})
    nearly = sick.model_copy(update={"good_samples": 2})
    assert judge_sample(nearly, None) == FlagChange("healthy again", {}, ("sick", "good_samples"))
    assert judge_sample(nearly, "hot") == FlagChange("hot", {"sick": "hot", "good_samples": 0})
