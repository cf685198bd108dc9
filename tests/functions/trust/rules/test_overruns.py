"""When a run is over its budget, and whose time others are compared with."""

from __future__ import annotations

from typing import Any

import pytest

from functions.trust.rules.overruns import overrun, reference_after
from state.records import Experiment, ReferenceTime, TimeSpent
from tests.functions.sample import experiment

FACTOR = 1.25


def trained(**fields: Any) -> Experiment:
    """A run that a worker trained on a GPU."""
    return experiment(
        2, **{"status": "running", "attempt": 1, "gpu_class": "H100", "budget_s": 300.0, **fields}
    )


def time(wall_seconds: float, cpu_seconds: float | None = None) -> TimeSpent:
    return TimeSpent(wall_seconds=wall_seconds, cpu_seconds=cpu_seconds)


def baseline(wall_seconds: float, cpu_seconds: float | None = None) -> ReferenceTime:
    return first_run(wall_seconds, cpu_seconds).model_copy(update={"baseline": True})


def first_run(wall_seconds: float, cpu_seconds: float | None = None) -> ReferenceTime:
    return ReferenceTime(
        experiment_id="mar11-1", budget_s=300.0, wall_seconds=wall_seconds, cpu_seconds=cpu_seconds
    )


CPU_SLOTS = ({"gpu_class": "cpu"}, {"gpu_class": "H100", "gpu_type": "cpu"})


@pytest.mark.parametrize(
    ("run", "spent", "usual", "is_over"),
    [
        # four times as much, but not 10 s more; then 10 s more, but not 1.25 times
        *(({}, time(wall), baseline(3.0), wall > 13) for wall in (12.9, 13.0, 13.1, 24.0)),
        *(({}, time(wall), baseline(300.0), wall > 375) for wall in (1.0, 310.1, 375.0, 375.1, 660.0)),
        # seconds that stopping granted do not count
        *(({"extended_s": 120.0}, time(wall), baseline(300.0), wall > 495) for wall in (430.0, 500.0)),
        # on a CPU slot its CPU seconds have to be over, too
        *((slot, time(60.0, 24.0), baseline(3.0, 3.0), True) for slot in CPU_SLOTS),
        *((slot, time(60.0, 4.0), baseline(3.0, 3.0), False) for slot in CPU_SLOTS),
        *((slot, time(60.0), baseline(3.0, 3.0), False) for slot in CPU_SLOTS),
        *((slot, time(60.0, 24.0), baseline(3.0), False) for slot in CPU_SLOTS),
        # a budget of its own scales the baseline's training, and not its start of 40 s
        *(({"budget_s": 300.001}, time(wall), baseline(300.0), wall > 600) for wall in (301.0, 640.0)),
        *(({"budget_s": 600.0}, time(wall), baseline(300.0), wall > 750) for wall in (640.0, 751.0)),
        *(({"budget_s": 60.0}, time(wall), baseline(340.0), wall > 125) for wall in (100.0, 130.0)),
        ({"budget_s": 60.0}, time(100.0), baseline(300.0), True),
    ],
)
def test_a_run_is_over_its_budget_by_the_factor_and_by_ten_seconds(
    run: dict[str, Any], spent: TimeSpent, usual: ReferenceTime, is_over: bool
) -> None:
    assert (overrun(trained(**run), spent, usual, FACTOR) is not None) == is_over


def test_it_says_by_what() -> None:
    of_3_s = trained(gpu_class="cpu", budget_s=3.0)

    on_cpu = overrun(of_3_s, time(24.04, 23.5), first_run(3.1, 3.0), FACTOR)
    scaled = overrun(trained(budget_s=600.0), time(900.0), baseline(310.0), FACTOR)

    assert on_cpu == (
        "over its budget: it trained 24.0 s where mar11-1, the first run on its class of GPU with its budget, trained"
        " 3.1 s, and used 23.5 CPU seconds against 3.0; 1.25 times as much, and 10 s more, are allowed"
    )
    assert overrun(trained(), time(500.0), baseline(300.0), 2.0) is None, "the policy sets the factor"
    assert scaled == (
        "over its budget: it trained 900.0 s where mar11-1, the baseline, trained 310.0 s (610.0 s with a budget of"
        " 600 s); 1.25 times as much, and 10 s more, are allowed"
    )


@pytest.mark.parametrize(
    ("budget_s", "first_s", "wall_s", "is_over"),
    [
        *((300.0, 6.0, 300.0, False), (300.0, 1.0, 375.0, False), (300.0, 6.0, 375.1, True)),
        (3.0, 0.5, 24.0, True),
        (300.0, 500.0, 600.0, False),  # the first run took longer
    ],
)
def test_a_short_first_run_makes_no_run_within_its_budget_guilty(
    budget_s: float, first_s: float, wall_s: float, is_over: bool
) -> None:
    run = trained(budget_s=budget_s)
    assert (overrun(run, time(wall_s), first_run(first_s), FACTOR) is not None) == is_over


@pytest.mark.parametrize(("cpu_s", "is_over"), [(2400.0, False), (4800.0, True)])
def test_a_short_first_run_makes_no_run_on_a_busy_machine_guilty(cpu_s: float, is_over: bool) -> None:
    on_eight_cores = first_run(6.0, 48.0)
    found = overrun(trained(gpu_class="cpu"), time(640.0, cpu_s), on_eight_cores, FACTOR)
    assert (found is not None) == is_over


def test_the_first_measured_run_is_what_others_are_compared_with_until_the_baseline_is() -> None:
    first = reference_after(trained(), time(301.0), None)

    assert first == ReferenceTime(experiment_id="mar11-2", budget_s=300.0, wall_seconds=301.0)
    assert reference_after(trained(), time(200.0), first) is None
    of_baseline = reference_after(trained(baseline=True), time(310.0), first)
    assert of_baseline == ReferenceTime(
        experiment_id="mar11-2", budget_s=300.0, baseline=True, wall_seconds=310.0
    )
    assert reference_after(trained(baseline=True, retest_of="mar11-1"), time(200.0), of_baseline) is None


def test_an_extended_run_is_compared_with_as_if_it_had_not_been() -> None:
    used = reference_after(trained(extended_s=120.0, used_extension=True), time(425.0), None)
    unused = reference_after(trained(extended_s=120.0), time(305.0), None)
    assert (used and used.wall_seconds, unused and unused.wall_seconds) == (305.0, 305.0)


@pytest.mark.parametrize(
    ("fields", "told"), [({"attempt": 0}, time(300.0)), ({"gpu_class": "cpu"}, time(300.0)), ({}, time(0.0))]
)
def test_no_run_is_compared_with_an_unmeasured_time(fields: dict[str, Any], told: TimeSpent) -> None:
    assert reference_after(trained(**fields), told, None) is None
