"""Verdicts beside the best: its own code, another class of GPU, and every field alike wherever it is read."""

from __future__ import annotations

from typing import Any

import pytest

from state.records import RunVerdict
from tests.functions.conftest import TagUnderTest
from tests.labs import open_tag

BEST: dict[str, Any] = {"commit_sha": "aaaaaaa"}
OTHER: dict[str, Any] = {"commit_sha": "bbbbbbb"}


async def best_of(tag: TagUnderTest) -> tuple[str, float]:
    found = await tag.best()
    return found["experiment_id"], found["val_bpb"]


async def test_the_next_idea_is_built_on_the_constants_of_a_keep_too(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    await tag.tried(1.0, **BEST)
    await tag.tried(0.9, **BEST, config_delta={"LR": 0.1})

    answers = [(await tag.client.get(f"/api/experiment/mar11-{n}/wait?timeout=0")).json() for n in (1, 2)]

    assert "with its config_delta" not in answers[0]["next"]
    assert "build the next idea on it, with its config_delta" in answers[1]["next"]


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ({"gpu_class": "B200"}, "another GPU class (B200) than"),
        ({"budget_seconds": 600.0}, "another budget (600.0) than"),
    ],
)
async def test_what_was_measured_otherwise_is_told_so_and_moves_nobody(
    tag: TagUnderTest, conditions: dict[str, Any], why: str
) -> None:
    usual = {"gpu_class": "H100", "budget_seconds": 300.0}
    await open_tag(tag.client)
    await tag.tried(2.655, **BEST, result=usual)

    first = await tag.tried(2.796, **OTHER, result=usual | conditions)
    second = await tag.tried(2.7, result=usual | conditions)

    assert (first["status"], first["improved"], first["action"]) == ("keep", True, "git_reset")
    assert first["base_commit_sha"] == second["base_commit_sha"] == "aaaaaaa"
    assert (first["compared_with"], second["compared_with"]) == (None, "mar11-2")
    assert first["reason"].startswith(why)
    assert "with nothing: it is the first there" in first["reason"]
    assert "with mar11-2, the best there; the tag's best stays what it is" in second["reason"]
    assert await best_of(tag) == ("mar11-1", 2.655)
    waited = await tag.asked("/api/experiment/mar11-2/wait?timeout=0")
    assert waited["next"].startswith("Reset to base_commit_sha, the tag's best")


async def test_the_incumbent_s_code_is_a_repeat_while_a_provisional_keep_stands(tag: TagUnderTest) -> None:
    await open_tag(tag.client, policy={"keep_rule": "confirmed"})
    await tag.tried(1.0, **BEST)
    assert (await tag.tried(0.979, **OTHER))["status"] == "keep"

    again = await tag.tried(0.9, **BEST)

    assert (again["status"], again["repeats_best"]) == ("discard", True)
    assert await best_of(tag) == ("mar11-2", 0.979)


@pytest.mark.parametrize("value", [1.0, 0.9, 0.901, 1.5], ids=["repeat", "keep", "near miss", "discard"])
async def test_every_field_is_the_same_wherever_it_is_read(tag: TagUnderTest, value: float) -> None:
    await open_tag(tag.client, base_commit="abc1234")
    await tag.tried(0.9, commit_sha="aaaaaaa")

    answer = await tag.tried(value, commit_sha="aaaaaaa" if value == 1.0 else "bbbbbbb")

    name = answer["experiment_id"]
    waited = await tag.asked(f"/api/experiment/{name}/wait?timeout=0")
    stored, shown = await tag.experiments.get(name), await tag.experiment(name)
    for field in RunVerdict.model_fields:
        assert answer[field] == waited[field] == shown[field] == getattr(stored, field), field
