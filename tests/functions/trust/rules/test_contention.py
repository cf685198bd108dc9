"""When a run was disturbed by another program."""

from __future__ import annotations

from typing import Any

import pytest

from functions.trust.rules.contention import pace_of, why_disturbed
from state.records import Pace
from tests.functions.sample import experiment


def pace(steps: float, **more: float) -> Pace:
    return Pace(experiment_id="mar11-1", steps=steps, **more)


@pytest.mark.parametrize(
    ("mine", "same_code", "baseline", "is_disturbed"),
    [
        *((pace(50), [], pace(100), True), (pace(79.9), [], pace(100), True)),
        *((pace(80), [], pace(100), False), (pace(300), [], pace(100), False)),
        (pace(50), [], None, False),  # nothing to compare with
        (pace(50), [50.0], pace(100), False),  # a slow repeat: it is the code
        (pace(50), [100.0], pace(50), True),
        (pace(50), [50.0, 100.0], None, True),  # the fastest run counts: contention only slows down
        (pace(50, tokens_m=2), [], pace(100, tokens_m=2), False),  # a larger batch
        (pace(50, tokens_m=1), [], pace(100, tokens_m=2), True),
        (pace(50, mfu_percent=40), [], pace(100, mfu_percent=38), False),  # a larger model
        (pace(50, mfu_percent=20), [], pace(100, mfu_percent=38), True),
        (pace(50, cpu_seconds=1.0), [], pace(100, cpu_seconds=0.98), False),  # a slower step
        (pace(50, cpu_seconds=0.5), [], pace(100, cpu_seconds=0.98), True),
        (pace(50, mfu_percent=40), [], pace(100), True),  # only what both have measured is compared
    ],
)
def test_a_run_is_disturbed_if_nothing_else_explains_its_pace(
    mine: Pace, same_code: list[float], baseline: Pace | None, is_disturbed: bool
) -> None:
    assert (why_disturbed(mine, same_code, baseline) is not None) == is_disturbed


def test_it_says_by_what() -> None:
    assert why_disturbed(pace(50), [], pace(100)) == (
        "another program slowed it down: 50 steps a second, where mar11-1, the baseline, made 100; it runs again"
    )


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({"num_steps": 600, "training_seconds": 300}, 2.0),
        ({"num_steps": 600, "wall_seconds": 400}, 1.5),
        ({"num_steps": 600}, None),
        ({"training_seconds": 300}, None),  # no steps, no contention
        ({"num_steps": 600, "training_seconds": 300, "attempt": 0}, None),  # its agent's own
    ],
)
def test_steps_a_second_are_those_of_the_training(fields: dict[str, Any], steps: float | None) -> None:
    found = pace_of(experiment(2, **{"attempt": 1, "gpu_class": "H100", **fields}))
    assert (found.steps if found else None) == steps


@pytest.mark.parametrize(("gpu_class", "cpu_seconds"), [("cpu", 0.6), ("H100", None)])
def test_cpu_seconds_count_on_a_cpu_slot_alone(gpu_class: str, cpu_seconds: float | None) -> None:
    ran = {"attempt": 1, "num_steps": 10, "training_seconds": 10, "wall_seconds": 12, "cpu_seconds": 6}
    found = pace_of(experiment(2, gpu_class=gpu_class, mfu_percent=40.0, **ran))
    assert found is not None
    assert (found.cpu_seconds, found.mfu_percent) == (cpu_seconds, 40.0)
