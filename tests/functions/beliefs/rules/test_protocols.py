"""A test asks for the runs that it lacks, and says what they show; noise alone does not win under `significant`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.beliefs.rules.protocols import (
    ARM_PRIORITY,
    CELL_PRIORITY,
    CellRun,
    RunningTest,
    missing_cells,
    verdict,
)
from functions.beliefs.rules.specs import Decision, cells_of, check_spec
from state.errors import Invalid
from state.records import Dimension, Value
from tests.functions.swarm.rules.sample import DEPTH, SOME

REFERENCE: Mapping[str, Value] = {"LR": 0.003, "DEPTH": 12, "LAYERS": 3, "DROPOUT": 0.25, "OPTIMIZER": "sgd"}
RULE = {"decision_rule": {"threshold": 0.01}}
FACTOR: dict[str, Any] = {"type": "single_factor_effect", "variable": "DEPTH", "values": [6, 12, 18], **RULE}
FACTOR["min_runs_per_cell"] = 3
GRID: dict[str, Any] = {"type": "interaction_grid", "variables": ["LR", "OPTIMIZER"], **RULE}
GRID |= {"grid": {"LR": [0.001, 0.01], "OPTIMIZER": ["adam", "sgd"]}, "fixed": {"DEPTH": 8}}
GRID["min_runs_per_cell"] = 2
CUT: dict[str, Any] = {"type": "threshold_test", "variable": "DEPTH", "values": [6, 10, 14, 18], **RULE}
CUT |= {"cut": 12, "better": "above", "min_runs_per_cell": 2}
RANKING: dict[str, Any] = {"type": "ranking_consistency", "variable": "OPTIMIZER", "across": "DEPTH"}
RANKING |= {"values": ["adam", "sgd", "lion"], "across_values": [6, 12, 18], "min_runs_per_cell": 2}
RANKING["decision_rule"] = {"threshold": 0.8}
ALL = pytest.mark.parametrize("spec", [FACTOR, GRID, CUT, RANKING], ids=lambda spec: str(spec["type"]))


def begun(
    spec: Mapping[str, Any],
    dimensions: Sequence[Dimension] = SOME,
    reference: Mapping[str, Value] = REFERENCE,
    decision: Decision = "threshold",
    **constraint: Any,
) -> RunningTest:
    spec = {**spec, "decision_rule": {**spec["decision_rule"], "decision": decision}}
    return RunningTest(check_spec(spec, dimensions), dimensions, reference, constraint)


def configs(test: RunningTest) -> list[Mapping[str, Value]]:
    """One config of each cell, in the order of the cells."""
    found: list[Mapping[str, Value]] = []
    for proposal in missing_cells(test, []):
        if proposal.config not in found:
            found.append(proposal.config)
    return found


def runs(test: RunningTest, *values: Sequence[float | None]) -> list[CellRun]:
    """Runs of the cells with these values."""
    cells = configs(test)
    return [CellRun(cells[n], value) for n, cell in enumerate(values) for value in cell]


@ALL
def test_a_test_lacks_the_runs_of_its_cells_in_turn_and_is_complete_when_nothing_is_missing(
    spec: dict[str, Any],
) -> None:
    test, rng = begun(spec), Random(1)
    cells, missing = cells_of(test.spec), missing_cells(test, [])
    assert [{name: p.config[name] for name in cells[0]} for p in missing] == cells * spec["min_runs_per_cell"]
    assert {p.priority for p in missing} == {CELL_PRIORITY if spec is GRID else ARM_PRIORITY}
    done: list[CellRun] = []
    while missing:
        assert missing[0].config.keys() == REFERENCE.keys()
        assert verdict(test, done).outcome is None
        done.append(CellRun(missing[0].config, rng.gauss(0, 1)))
        missing = missing_cells(test, done)
    assert len(done) == len(cells) * spec["min_runs_per_cell"]
    assert verdict(test, done).outcome in ("win", "loss")


def test_all_else_stands_at_the_reference_the_constraint_and_what_is_fixed() -> None:
    test = begun(GRID, LAYERS={"min": 4})
    others = {(c["DEPTH"], c["LAYERS"], c["DROPOUT"]) for c in configs(test)}
    assert others == {(8, 4, 0.25)}


def test_runs_that_ended_wait_or_go_on_are_not_asked_for_again() -> None:
    test = begun(FACTOR)
    first, second, third = configs(test)
    ended = [CellRun(first, 0.1), CellRun(first, None, pending=True), *[CellRun(second, 0.2)] * 5]
    found = missing_cells(test, ended)
    assert Counter(p.config["DEPTH"] for p in found) == {6: 1, 18: 3}
    assert found[0].config == first
    assert third in [p.config for p in found]


def test_a_crash_is_run_again_until_the_cell_is_given_up() -> None:
    test = begun(FACTOR)
    first = configs(test)[0]
    assert Counter(p.config["DEPTH"] for p in missing_cells(test, [CellRun(first, None)] * 8))[6] == 3
    assert Counter(p.config["DEPTH"] for p in missing_cells(test, [CellRun(first, None)] * 9))[6] == 0


def test_an_effect_of_the_threshold_wins_and_a_smaller_one_loses() -> None:
    test = begun(FACTOR)
    won = verdict(test, runs(test, [0.0, 0.0, 0.0], [0.01, 0.01, 0.01], [0.004, 0.004, 0.004]))
    lost = verdict(test, runs(test, [0.0, 0.0, 0.0], [0.009, 0.009, 0.009], [0.004, 0.004, 0.004]))
    assert (won.outcome, lost.outcome) == ("win", "loss")
    assert [won.effect, lost.effect] == pytest.approx([0.01, 0.009])


def test_a_grid_that_adds_up_has_no_interaction_and_one_that_does_not_has_its_mean_residual() -> None:
    test = begun(GRID, decision="significant")
    additive = verdict(test, runs(test, [0.0, 0.01], [0.1, 0.11], [0.2, 0.21], [0.3, 0.31]))
    crossed = verdict(test, runs(test, [0.0, 0.01], [0.1, 0.11], [0.1, 0.11], [0.0, 0.01]))
    assert (additive.outcome, crossed.outcome) == ("loss", "win")
    assert [additive.effect, crossed.effect] == pytest.approx([0, 0.05])
    assert crossed.standard_error == pytest.approx(0.5**0.5 * 0.01 / 8**0.5)


@pytest.mark.parametrize(("better", "expected"), [("above", "win"), ("below", "loss")])
def test_a_cut_wins_on_the_side_that_was_claimed_only(better: str, expected: str) -> None:
    test = begun({**CUT, "better": better}, decision="significant")
    found = verdict(test, runs(test, [0.3, 0.31], [0.32, 0.3], [0.1, 0.11], [0.1, 0.12]))
    assert found.outcome == expected
    assert found.effect == pytest.approx(0.2 if better == "above" else -0.2)


def test_rankings_that_agree_win_and_others_lose() -> None:
    test = begun(RANKING, decision="significant")
    same = [[0.1, 0.11], [0.2, 0.21], [0.3, 0.31]]
    turned = [same[1], same[2], same[0]]

    agreeing = verdict(test, runs(test, *same * 3))
    mixed = verdict(test, runs(test, *same, *turned, *turned[::-1]))

    assert agreeing.outcome == "win"
    assert [agreeing.effect, agreeing.standard_error] == pytest.approx([1, 0])
    assert agreeing.p_value == pytest.approx(1 / 36)
    assert mixed.outcome == "loss"


def test_an_arm_that_always_crashes_is_left_out_and_a_cell_loses_the_test() -> None:
    factor, grid = begun(FACTOR), begun(GRID)
    kept = verdict(factor, runs(factor, [None] * 9, [0.0] * 3, [0.02] * 3))
    alone = verdict(factor, runs(factor, [None] * 9, [None] * 9, [0.0] * 3))
    cell = verdict(grid, runs(grid, [None] * 6, [0.0] * 2, [0.1] * 2, [0.2] * 2))
    assert kept.outcome == "win"
    assert kept.effect == pytest.approx(0.02)
    assert (alone.outcome, cell.outcome) == ("loss", "loss")


@given(st.lists(st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=4), min_size=3, max_size=3))
def test_any_values_have_a_verdict(values: list[list[float]]) -> None:
    test = begun(FACTOR, decision="significant")
    found = verdict(test, runs(test, *values))
    assert found.outcome in ("win", "loss")
    assert found.p_value is not None
    assert 0 <= found.p_value <= 1


def test_a_test_that_is_certain_ends_early_where_its_spec_says_so() -> None:
    patient = {**FACTOR, "min_runs_per_cell": 10}
    hasty = {**patient, "stop_condition": {"or_confidence": 0.95}}
    clear = [[0.0, 0.01, 0.02], [1.0, 1.01, 1.02], [2.0, 2.01, 2.02]]
    unclear = [[0.0, 0.6, -0.7], [0.1, 0.9, -0.8], [0.0, 0.8, -0.5]]
    assert verdict(begun(hasty), runs(begun(hasty), *clear)).outcome == "win"
    assert missing_cells(begun(hasty), runs(begun(hasty), *clear)) == []
    assert verdict(begun(patient), runs(begun(patient), *clear)).outcome is None
    assert verdict(begun(hasty), runs(begun(hasty), *unclear)).outcome is None


@pytest.mark.parametrize("arms", [2, 8])
def test_noise_wins_in_at_most_5_percent_under_the_significant_rule(arms: int) -> None:
    """Arms of 3 runs with sigma 1, at the threshold that two of them reach in 13 % of the cases."""
    spec = {**FACTOR, "values": list(range(4, 4 + arms)), "decision_rule": {"threshold": 2.14 / 3**0.5}}
    test, rng, won = begun(spec, [DEPTH], {}, "significant"), Random(5), 0
    cells = configs(test)
    for _ in range(600):
        noise = [CellRun(cell, rng.gauss(0, 1)) for _ in range(3) for cell in cells]
        won += verdict(test, noise).outcome == "win"
    assert won / 600 <= 0.055


@pytest.mark.parametrize(
    ("spec", "wrong", "field"),
    [
        (FACTOR, {"type": "anova"}, "type"),
        (FACTOR, {"variable": "WIDTH"}, "variable"),
        (FACTOR, {"values": [6, 99]}, "values.1"),
        (FACTOR, {"values": [6, 12, 6.0]}, "values.2"),
        (FACTOR, {"min_runs_per_cell": 0}, "min_runs_per_cell"),
        (FACTOR, {"decision_rule": {"threshold": 0}}, "decision_rule.threshold"),
        (FACTOR, {"stop_condition": {"or_confidence": 95}}, "stop_condition.or_confidence"),
        (FACTOR, {"fixed": {"DEPTH": 8}}, "fixed.DEPTH"),
        (FACTOR, {"runs": 3}, "runs"),
        (GRID, {"variables": ["LR", "LR"], "grid": {"LR": [0.001, 0.01]}}, "variables"),
        (GRID, {"grid": [[0.001, 9], ["adam", "sgd"]]}, "grid.LR.1"),
        (GRID, {"grid": [[0.001] * 51, ["adam", "sgd"]]}, "grid.LR"),
        (CUT, {"cut": 40}, "cut"),
        (CUT, {"variable": "OPTIMIZER", "values": ["adam", "sgd"]}, "values"),
        (RANKING, {"across": "OPTIMIZER", "across_values": ["adam", "sgd"]}, "across"),
        (RANKING, {"across_values": [6]}, "across_values"),
    ],
)
def test_a_wrong_spec_is_told_with_its_field(spec: dict[str, Any], wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        check_spec({**spec, **wrong}, SOME)
    assert refusal.value.detail.startswith(f"test_spec.{field}: ")
    assert refusal.value.hint
