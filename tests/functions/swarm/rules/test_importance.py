"""What a dimension explains is measured as the textbook has it, whatever the search has looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import pytest

from functions.swarm.rules.gaussian_search import LEAST_RUNS, importances
from functions.swarm.rules.proposals import Observation
from functions.swarm.rules.shapes import drawn_config
from state.records import Dimension, Value
from tests.functions.swarm.rules.sample import INVESTIGATE, SOME, dimension, runs

A, B, C, D = (dimension(name, "float", min=0, max=1) for name in "ABCD")


def seen(
    dimensions: list[Dimension], value: Callable[[Mapping[str, Value]], float], n: int = 200
) -> list[Observation]:
    rng = Random(1)
    configs = [drawn_config(dimensions, INVESTIGATE, rng) for _ in range(n)]
    return [Observation(config, value(config) + rng.gauss(0, 0.01)) for config in configs]


def number(config: Mapping[str, Value], name: str) -> float:
    return float(config[name])


def test_effects_that_add_up_explain_their_shares_of_the_variance() -> None:
    found = importances([A, B, C], seen([A, B, C], lambda c: 2 * number(c, "A") + number(c, "B")))
    assert found["A"].importance == pytest.approx(0.8, abs=0.06)  # variances of 4 / 12 and 1 / 12
    assert found["B"].importance == pytest.approx(0.2, abs=0.06)
    assert found["C"].importance < 0.02
    assert all(each.interaction < 0.05 for each in found.values())


def test_an_interaction_is_told_from_main_effects() -> None:
    def product(c: Mapping[str, Value]) -> float:
        return (number(c, "A") - 0.5) * (number(c, "B") - 0.5)

    found = importances([A, B, C], seen([A, B, C], product))

    assert found["A"].importance + found["B"].importance < 0.15
    assert found["A"].interaction > 0.8
    assert found["B"].interaction > 0.8
    assert found["A"].interacts_with.keys() == {"B"}
    shares = [found[a].interacts_with[b] for a, b in ("AB", "BA")]
    assert shares[0] == shares[1] == pytest.approx(found["A"].interaction, abs=0.1)
    assert found["C"].interaction < 0.1


def test_a_dimension_names_those_that_it_interacts_with_the_strongest_first() -> None:
    def value(c: Mapping[str, Value]) -> float:
        a, b, c_ = (number(c, name) - 0.5 for name in "ABC")
        return a * b + 0.4 * b * c_ + 0.2 * (number(c, "D") - 0.5)

    found = importances([A, B, C, D], seen([A, B, C, D], value, 300))

    assert [*found["B"].interacts_with] == ["A", "C"]
    assert found["A"].interacts_with.keys() == {"B"}
    # variances of the products: 1 / 144 and 0.16 / 144; of D's effect: 0.04 / 12
    whole = (1 + 0.16 + 0.48) / 144
    assert found["B"].interacts_with["A"] == pytest.approx(1 / 144 / whole, abs=0.1)
    assert found["B"].interacts_with["C"] == pytest.approx(0.16 / 144 / whole, abs=0.06)
    assert not found["D"].interacts_with


def test_it_does_not_fall_because_the_search_has_converged() -> None:
    def bowl(c: Mapping[str, Value]) -> float:
        return (number(c, "A") - 0.3) ** 2 + 0.1 * number(c, "B")

    early = seen([A, B, C], bowl, 60)
    rng = Random(5)
    near = [{"A": 0.3 + rng.gauss(0, 0.01), "B": rng.random(), "C": rng.random()} for _ in range(300)]
    late = [Observation(config, bowl(config) + rng.gauss(0, 0.01)) for config in near]

    before, after = (importances([A, B, C], each)["A"].importance for each in (early, [*early, *late]))

    assert before > 0.7
    assert after > 0.7


def test_few_runs_say_nothing_and_equal_ones_that_nothing_matters() -> None:
    assert importances(SOME, runs([0.1 * n for n in range(LEAST_RUNS - 1)])) == {}
    assert all(
        each.importance == each.interaction == 0.0
        for each in importances(SOME, runs([0.25] * LEAST_RUNS)).values()
    )
