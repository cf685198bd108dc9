"""A tag learns its noise from repeats, and says how far a verdict can be trusted."""

from __future__ import annotations

import asyncio
import math
from unittest.mock import Mock

import pytest

from functions.experiments.rules.claiming import judge_report
from state import reads
from tests.functions.conftest import TagUnderTest
from tests.labs import open_tag, registered

BASE = "abc1234"


async def spread(tag: TagUnderTest, gpu_class: str | None = None) -> tuple[float, int]:
    lab = tag.lab
    (found,) = await lab.read(reads.noise(lab.keys, "mar11", gpu_class))
    return found.squares, found.df


async def test_the_summary_tells_the_noise_and_how_many_keeps_are_false(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    first = await tag.summary()
    for value in (1.0, 1.002):
        await tag.tried(value, commit_sha=BASE)

    lucky, true = await tag.tried(0.9999), await tag.tried(0.9)

    summary = await tag.summary()
    assert (first["noise"], first["false_keeps_at_least"]) == (None, None)
    assert summary["noise"] == {"sigma": pytest.approx(math.sqrt(2) / 1000), "df": 1}
    doubts = [1 - lucky["p_better"], 1 - true["p_better"]]
    assert summary["false_keeps_at_least"] == pytest.approx(sum(doubts) / 2)


async def test_a_patch_of_another_commit_is_a_repeat_and_other_constants_are_not(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    await tag.tried(1.0, diff="+x\n")
    await tag.tried(1.1, diff="+x\n")
    assert (await spread(tag))[1] == 1

    await tag.tried(1.2, diff="+x\n", config_delta={"LR": 0.1})
    await tag.tried(1.3, diff="+x\n", config_delta={"LR": 0.2})
    assert (await spread(tag))[1] == 1
    await tag.tried(1.4, diff="+x\n", config_delta={"LR": 0.2})
    await tag.tried(1.5, diff="+x\n", config_delta={"LR": 0.2, "SEED": 7}, seed=7)
    assert (await spread(tag))[1] == 3


async def test_repeats_that_finish_together_are_judged_three_times_each_at_most(
    tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_tag(tag.client)
    names = [await registered(tag.client, commit_sha=BASE) for _ in range(20)]
    judged = Mock(side_effect=judge_report)
    monkeypatch.setattr("functions.experiments.ending.judge_report", judged)

    await asyncio.gather(
        *(tag.told("/api/experiment/complete", experiment_id=name, val_bpb=1.0) for name in names)
    )

    assert judged.call_count <= 3 * len(names)  # one after the other, each again after the one before: 210


async def test_a_run_whose_evaluator_changed_teaches_no_noise(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    for value, evaluator in ((1.0, "a"), (0.5, "b"), (1.1, "a")):
        await tag.tried(value, commit_sha=BASE, result={"evaluator_hash": evaluator})
    squares, df = await spread(tag)
    assert squares == pytest.approx(0.005)
    assert df == 1
