"""Records for tests of rules."""

from __future__ import annotations

from typing import Any

from state.records import Experiment, Gpu


def experiment(number: int = 1, **fields: Any) -> Experiment:
    """A registered experiment of the tag `mar11`."""
    plain: dict[str, Any] = {
        "experiment_id": f"mar11-{number}",
        "tag": "mar11",
        "number": number,
        "status": "registered",
        "hypothesis": "h",
        "description": "d",
        "category": "optimizer",
        "commit_sha": "abc1234def",
        "diff_summary": "s",
        "registered_at": 0.0,
    }
    return Experiment.model_validate(plain | fields)


def gpu(gpu_id: str = "g0", **fields: Any) -> Gpu:
    """An idle GPU."""
    return Gpu.model_validate(
        {"gpu_id": gpu_id, "gpu_index": 0, "gpu_name": "H100", "vram_mb": 80000.0} | fields
    )
