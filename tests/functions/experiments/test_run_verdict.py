"""The verdict on a run is stated once: what complete answers is stored, waited for, and shown."""

from __future__ import annotations

import pytest

from state.records import RunVerdict
from tests.functions.conftest import TagUnderTest
from tests.labs import open_tag


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
