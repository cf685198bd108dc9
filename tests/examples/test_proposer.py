"""The scripted agent's proposer: pure, seeded, careful with the script, and decent."""

from __future__ import annotations

import ast
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from proposer import (  # pyright: ignore[reportMissingImports]  # the examples join the path in conftest.py
    Knowledge,
    Past,
    ProposedChange,
    SearchStrategy,
    propose,
    read_constants,
    set_constants,
)

from functions.formats import constants as workers
from functions.kernel.contract import CATEGORIES

TINYLM = (Path(__file__).parents[2] / "examples" / "tinylm" / "train.py").read_text()
SCRIPT = read_constants(TINYLM)
BASE = {name: constant.value for name, constant in SCRIPT.items()}
BASELINE = Past("t-1", "keep", {}, "other")


def known(*past: Past, **standing: object) -> Knowledge:
    """Knowledge of tinylm with these constants as the best so far."""
    script = read_constants(workers.patch_constants(TINYLM, standing)) if standing else SCRIPT
    return Knowledge(BASE, script, [BASELINE, *past])


# -- the script


def test_constants_are_found_as_the_worker_finds_them() -> None:
    assert {"WIDTH": 48, "LEARNING_RATE": 0.001, "OPTIMIZER": "adam"}.items() <= BASE.items()
    assert BASE.items() <= workers.read_constants(TINYLM).items()


@pytest.mark.parametrize(
    ("source", "values", "after"),
    [
        ("LR = 3e-4  # ünïcode\r\n", {"LR": 0.001}, "LR = 0.001  # ünïcode\r\n"),
        ("N: int = 2**4; M = 2 # x", {"M": 3, "N": 32}, "N: int = 32; M = 3 # x"),
        ("A='relu'\n", {"A": "gelu"}, 'A="gelu"\n'),
        ("X = 'ü'; Y = -1\n", {"Y": -2}, "X = 'ü'; Y = -2\n"),
    ],
)
def test_only_the_literal_is_written(source: str, values: dict[str, int | float | str], after: str) -> None:
    assert set_constants(source, values) == after


# -- the proposal


@pytest.mark.parametrize("mode", ["explore", "exploit", "combine", "ablation", "a mode of the future"])
def test_every_mode_changes_constants_alone_as_the_lab_accepts_it(mode: str) -> None:
    now = known(Past("t-2", "keep", {"WIDTH": 96}, "architecture", ("t-1",)), WIDTH=96)
    best = set_constants(TINYLM, {"WIDTH": 96})

    for seed in range(20):
        idea = propose(now, SearchStrategy(mode, 0.5, 0.3), random.Random(seed))
        edited = set_constants(best, idea.changes)

        assert idea.category in CATEGORIES
        assert idea.changes
        assert idea.description
        assert idea.hypothesis
        assert not now.was_tried(idea.changes)
        lines = zip(best.splitlines(), edited.splitlines(), strict=True)
        assert [before.split()[0] for before, after in lines if before != after] == list(idea.changes)
        ast.parse(edited)


def test_exploring_turns_to_an_underexplored_category() -> None:
    strategy = SearchStrategy("explore", 1.0, 1.0, underexplored=["activation", "attention"])
    ideas = [propose(known(), strategy, random.Random(seed)) for seed in range(10)]
    assert {idea.category for idea in ideas} == {"activation"}


def test_combining_merges_two_near_misses_of_different_categories() -> None:
    misses = [
        Past("t-2", "discard", {"WIDTH": 96, "EMBED": 8}, "architecture", ("t-1",)),
        Past("t-3", "discard", {"DEPTH": 2}, "architecture", ("t-1",)),
        Past("t-4", "discard", {"GRAD_CLIP": 2.0}, "regularization", ("t-1",)),
        Past("t-5", "discard", {"WIDTH": 80}, "regularization", ("t-1",)),
    ]
    now = replace(known(*misses), near_misses=["t-2", "t-3", "t-5", "t-4"])

    idea = propose(now, SearchStrategy("combine", 0.5, 0.3), random.Random(1))

    assert idea.changes == {"WIDTH": 96, "EMBED": 8, "GRAD_CLIP": 2.0}
    assert idea.category == "combination"
    assert idea.parents == ("t-2", "t-4")


def test_ablation_takes_the_newest_change_back() -> None:
    keeps = [
        Past("t-2", "keep", {"WIDTH": 96}, "architecture", ("t-1",)),
        Past("t-3", "keep", {"WIDTH": 96, "DEPTH": 2}, "architecture", ("t-2",)),
    ]

    idea = propose(known(*keeps, WIDTH=96, DEPTH=2), SearchStrategy("ablation", 0.3, 0.3), random.Random(1))

    # Without DEPTH it would be t-2 again, so what is left to take out is WIDTH.
    assert idea == ProposedChange(
        {"WIDTH": 48},
        "ablation",
        "WIDTH 96 -> 48",
        "WIDTH does not need to differ from where it began: simpler is as good.",
    )


def test_fifteen_ideas_improve_a_baseline_like_that_of_tinylm() -> None:
    rng = random.Random(1)
    best, past, value = BASELINE, list[Past](), loss({})

    for number in range(2, 17):
        now = known(*past, **dict(best.config or {}))
        strategy = SearchStrategy("explore", 1.0, 0.8) if number < 6 else SearchStrategy("exploit", 0.5, 0.3)
        idea = propose(now, strategy, rng)
        assert not now.was_tried(idea.changes)
        config = now.with_changes(idea.changes)
        kept = loss(config) < value
        tried = Past(
            f"t-{number}", "keep" if kept else "discard", config, idea.category, (best.experiment_id,)
        )
        past.append(tried)
        if kept:
            best, value = tried, loss(config)

    assert value < loss({}) - 0.01


def loss(config: Mapping[str, object]) -> float:
    """About what tinylm's val_bpb does: more capacity and larger steps help, up to a point."""
    best_at = {"LEARNING_RATE": 0.004, "WIDTH": 128, "EMBED": 16, "DEPTH": 3, "EXPANSION": 4, "CONTEXT": 4}
    total = 0.0
    for name, best in best_at.items():
        value = config.get(name, BASE[name])
        assert isinstance(value, int | float)
        total += 0.04 * abs(math.log2(value / best))
    return total + 0.2 * (config.get("OPTIMIZER", "adam") != "adam") + 0.02 * ("ACTIVATION" in config)
