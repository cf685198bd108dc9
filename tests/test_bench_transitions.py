"""Rules of the search on a record of tries: what came of those that each would have chosen."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from bench._transitions import (
    PUBLISHED,
    YIELDS,
    Judged,
    Try,
    compared,
    judged_categories,
    judged_modes,
    recorded_tries,
    scaled,
    weighed,
)
from functions.kernel.contract import CATEGORIES
from state.records import Direction, End, Status

BASE = Try(End("keep", baseline=True), 1.0)


def tried(category: str, value: float | None, status: Status = "discard") -> Try:
    return Try(End(status, category=category), value)


def choice(chosen: str, published: str, yields: str, gain: float = 0.0) -> Judged:
    return Judged(chosen, {PUBLISHED: published, YIELDS: yields}, gain > 0, gain)


def each_once(choices: list[Judged]) -> tuple[list[list[Judged]], list[list[int]]]:
    return [[c] for c in choices], [[*range(len(choices))]]


STARTED = [
    BASE,
    tried("optimizer", 1.1),
    tried("optimizer", 0.9, "keep"),
    tried("attention", 0.9015),
    tried("attention", None, "crash"),
]


def test_each_try_has_its_kind_its_gain_and_what_the_rules_said_before_it() -> None:
    after = [tried("optimizer", 0.8, "keep"), tried("embedding", 0.7, "keep"), tried("embedding", 0.95)]

    found = judged_modes([*STARTED, *after], "minimize")

    assert [c.chosen for c in found] == ["exploit", "explore", "exploit"]
    assert [c.gain for c in found] == [pytest.approx(0.1), pytest.approx(0.1), 0]
    assert [c.kept for c in found] == [True, True, False]
    assert [c.recommended[PUBLISHED] for c in found] == ["explore", "exploit", "exploit"]
    assert {c.recommended[YIELDS] for c in found} <= {"explore", "exploit", "ablation"}


def test_near_misses_are_those_of_the_best_at_the_time() -> None:
    quiet = [tried("attention", 2.0)] * 20
    near = [tried("embedding", 0.901), tried("embedding", 0.902)]

    with_two = judged_modes([*STARTED, *near, *quiet], "minimize")
    left_behind = judged_modes([*STARTED, *near, tried("optimizer", 0.5, "keep"), *quiet], "minimize")

    assert with_two[-1].recommended[PUBLISHED] == "combine"
    assert left_behind[-1].recommended[PUBLISHED] == "ablation"


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_either_direction_gains_the_same(direction: Direction) -> None:
    sign = 1 if direction == "minimize" else -1
    tries = [Try(t.end, None if t.value is None else 2 + sign * t.value) for t in STARTED]
    tries += [Try(End("keep", category="optimizer"), 2 + sign * 0.8)]

    assert [c.gain for c in judged_modes(tries, direction)] == [pytest.approx(0.1)]


def test_baselines_and_faults_of_the_infrastructure_are_no_choices() -> None:
    broken = Try(End("crash", "infra", category="optimizer"), None)

    assert judged_modes([*STARTED, BASE, broken], "minimize") == []


def test_categories_are_compared_where_something_was_explored() -> None:
    after = [tried("optimizer", 1.0), tried("embedding", 1.0), tried("ablation", 1.0), tried("other", 1.0)]

    [found] = judged_categories([*STARTED, *after], "minimize", CATEGORIES)

    assert found.chosen == "embedding"
    assert found.recommended[PUBLISHED] == "architecture"
    assert found.recommended[YIELDS] == "architecture"


def test_tries_count_for_a_rule_that_would_have_chosen_them_too() -> None:
    choices = [choice("explore", "explore", "exploit", 0.2)] * 10
    choices += [choice("exploit", "explore", "exploit", 0.6)] * 5
    choices += [choice("exploit", "explore", "exploit")] * 5

    found = compared(*each_once(choices))

    assert (found.record.tries, found.rules[PUBLISHED].tries, found.rules[YIELDS].tries) == (20, 10, 10)
    assert found.record.rates == pytest.approx((0.75, 0.25, 0.75, 0.25))
    assert found.rules[PUBLISHED].rates == pytest.approx((1, 0.2, 1, 0.2))
    assert found.rules[YIELDS].rates == pytest.approx((0.5, 0.3, 0.5, 0.3))
    assert found.difference.rates == pytest.approx((-0.5, 0.1, -0.5, 0.1))
    assert found.difference.tries == 20


def test_weights_take_out_that_agents_like_one_kind() -> None:
    often = [choice("explore", "explore", "explore")] * 18
    seldom = [choice("exploit", "exploit", "exploit", 1.0)] * 2

    found = compared(*each_once(weighed([*often, *seldom]))).rules[YIELDS].rates

    assert found == pytest.approx((0.1, 0.1, 0.5, 0.5))


def test_a_rule_that_few_tries_agree_with_has_no_interval() -> None:
    nine = [choice("explore", "explore", "exploit", 1.0)] * 20 + [choice("exploit", "explore", "exploit")] * 9

    found = compared(*each_once(nine))

    assert found.rules[PUBLISHED].intervals is not None
    assert (found.rules[YIELDS].intervals, found.difference.intervals) == (None, None)
    assert not found.difference.is_significant
    assert compared(*each_once(nine[:20])).rules[YIELDS].rates is None


def test_a_difference_is_significant_only_where_it_is_there_and_holds_in_the_draws() -> None:
    chance = Random(1)

    def drawn(good: float) -> list[Judged]:
        pays = [choice("exploit", "explore", "exploit", float(chance.random() < good)) for _ in range(60)]
        return weighed(
            [*pays, *[choice("explore", "explore", "exploit", float(n % 5 == 0)) for n in range(60)]]
        )

    draws = [chance.choices(range(120), k=120) for _ in range(200)]

    assert compared([[c] for c in drawn(0.6)], draws).difference.is_significant
    assert not compared([[c] for c in drawn(0.2)], draws).difference.is_significant


def test_gains_are_told_in_any_unit() -> None:
    assert [c.gain for c in scaled([choice("explore", "explore", "explore", 3.0)], 2.0)] == [1.5]


def test_a_log_s_column_of_categories_comes_before_the_words_of_its_descriptions(tmp_path: Path) -> None:
    log = tmp_path / "log.tsv"
    rows = ["abcdef0\t1.0\tkeep\tother\tbaseline", "abcdef1\t2.0\tdiscard\tablation\tdepth 9"]
    log.write_text("\n".join(["commit\tval_bpb\tstatus\tcategory\tdescription", *rows]))

    _, tries = recorded_tries(log)

    assert [(found.end.category, found.end.baseline) for found in tries] == [
        ("other", True),
        ("ablation", False),
    ]
