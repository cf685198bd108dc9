"""A tag whose search goes by yields: what search::adapt and search::suggest_direction answer."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.labs import open_tag, registered, told, tried

BY_YIELDS = {"adapt.rule": "yields"}


async def play(http: httpx.AsyncClient, *tries: tuple[str, bool]) -> None:
    """Tries, oldest first: the category of each, and whether it was better than all before it."""
    best = 2.0
    for category, better in tries:
        best -= 0.01 * better
        await tried(http, best if better else best + 0.5, category=category)


PAYS = ("embedding", True), ("optimizer", True), *[("attention", False)] * 3
STEPS = (*PAYS, ("optimizer", True), ("optimizer", True))


@pytest.mark.parametrize("path", ["/api/search/suggest", "/api/search/adapt"])
async def test_a_strategy_that_several_find_due_changes_once(client: httpx.AsyncClient, path: str) -> None:
    await open_tag(client, policy=BY_YIELDS)
    await play(client, *STEPS)
    await asyncio.gather(*(told(client, path, tag="mar11") for _ in range(5)))
    events = await told(client, "/api/event/list", tag="mar11", types=["strategy.changed"])
    assert len(events["events"]) == 1
    adapted = await told(client, "/api/search/adapt", tag="mar11")
    assert (adapted["mode"], adapted["temperature"], adapted["explore_ratio"]) == ("exploit", 0.5, 0.3)
    assert adapted["reason"].startswith("exploit promises most: ")


@pytest.mark.parametrize("after", [0, 1])
async def test_an_idea_is_of_the_best_mode_and_category(client: httpx.AsyncClient, after: int) -> None:
    await open_tag(client, policy=BY_YIELDS)
    await play(client, *STEPS)
    for _ in range(after):  # the strategy is decided already when the idea is asked for
        await told(client, "/api/search/adapt", tag="mar11")

    exploiting = await told(client, "/api/search/suggest", tag="mar11")
    await told(client, "/api/search/set-strategy", tag="mar11", mode="explore", reason="look elsewhere")
    exploring = await told(client, "/api/search/suggest", tag="mar11")

    assert exploiting["strategy_mode"] == "exploit"
    assert exploiting["suggestions"][0].endswith("the last kept change in optimizer.")
    assert exploring["suggestions"][0].startswith("Try one change in embedding (tried there: mar11-1 keep")


async def test_what_was_made_from_several_is_a_combination(client: httpx.AsyncClient) -> None:
    await open_tag(client, policy=BY_YIELDS)
    await play(client, *PAYS)
    for value in (1.9, 1.8, 1.7):
        merged = await registered(client, category="optimizer", parent_ids=["mar11-1", "mar11-2"])
        await told(client, "/api/experiment/complete", experiment_id=merged, val_bpb=value)
    for category in ("activation", "embedding"):
        await tried(client, 1.701, category=category)

    adapted = await told(client, "/api/search/adapt", tag="mar11")

    assert adapted["mode"] == "combine"
