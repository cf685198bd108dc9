"""The picture of `nightjar top`: how rows share a screen, and what fits."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from triggers.cli.top import LabNow, picture

TAG = "a-tag-of-forty-letters-which-is-the-most"


def night(tag: str, **known: Any) -> dict[str, Any]:
    return {
        "tag": tag,
        "sigma": 0.0012,
        "gain": 0.01234567,
        "chain": [{"above": None}, {"above": f"{tag}-1"}],
        "by_delta": False,
        "best": 0.98765432,
        "best_experiment_id": f"{tag}-7",
        "ideas": 7,
        "kept": 3,
        "runs_an_hour": 11.8,
        "last_keep_at": "2026-01-01T00:00:00Z",
    } | known


def run(name: str) -> dict[str, Any]:
    return {
        "experiment_id": name,
        "started_at": "2026-01-01T00:00:00Z",
        "budget_s": 300.0,
        "last_progress": 0.5,
        "last_metric": 1.23456789,
        "gpu_id": "box:0",
        "agent": "ada",
        "worker_id": None,
        "description": "更宽的模型" * 30,
    }


def gpu(name: str) -> dict[str, Any]:
    health = {"utilization_percent": 98.0, "memory_used_mb": 61_000.0, "memory_total_mb": 81_920.0}
    return {
        "gpu_id": name,
        "gpu_name": "NVIDIA H100 80GB HBM3",
        "status": "training",
        "health": health,
        "experiment_id": f"{TAG}-1",
        "leased_at": "2026-01-01T00:00:00Z",
    }


def event(nth: int) -> dict[str, Any]:
    return {"type": "gpu.idle", "time": "2026-01-01T00:00:00Z", "tag": None, "subject": f"n{nth}", "data": {}}


def lab(tags: int, runs: int, gpus: int, events: int, **known: Any) -> LabNow:
    status = {"lab": "lab", "queue": 3, "counts": {"web": 1}, "hints": [], "paused_tags": []}
    return LabNow(
        url="http://127.0.0.1:3111",
        status=status,
        gpus=[gpu(f"box:{n}") for n in range(gpus)],
        results=[night(f"t{n}", **known) for n in range(tags)],
        runs=[run(f"t{n % max(1, tags)}-{n}") for n in range(runs)],
        more_runs=0,
        events=[event(n) for n in range(events)],
        trouble="",
        at=1_767_225_600.0,
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 10), (200, 50), (40, 5)])
def test_a_large_lab_fits_every_screen_and_says_what_is_left_out(width: int, height: int) -> None:
    lines = [line.plain for line in picture(lab(12, 500, 64, 50), width, height)]

    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width
    if height >= 24:
        assert sum(line.startswith("and ") for line in lines) >= 2
