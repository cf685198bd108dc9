"""What a swarm may vary and believes is decided again where another process has changed it meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from functions.process.lifecycle import Process, opened
from state.change import Change
from state.settings import Settings
from state.tags import Tags
from tests.conftest import http_client
from tests.functions.test_measuring import ENOUGH, searched
from tests.functions.test_swarm import DIMENSIONS, Swarm
from tests.labs import events_of, told

DEFINE, FREEZE = "/api/dimension/define", "/api/dimension/freeze"
DEPTH = {"name": "DEPTH2", "dtype": "int", "min": 4, "max": 24}
HELD = {"tag": "swarm", "name": "LR", "value": 0.01, "reason": "x"}
Meanwhile = Callable[[Callable[[], Awaitable[Any]]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Let something happen once, between the reads of the next change and its commit."""

    def let(happen: Callable[[], Awaitable[Any]]) -> None:
        commit = Change.commit

        async def late(change: Change) -> bool:
            monkeypatch.setattr(Change, "commit", commit)
            await happen()
            return await commit(change)

        monkeypatch.setattr(Change, "commit", late)

    return let


@pytest.fixture
async def swarm(client: httpx.AsyncClient, process: Process) -> Swarm:
    await told(client, DEFINE, tag="swarm", dimensions=DIMENSIONS)
    return Swarm(client, process)


@pytest.fixture
async def other(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """Calls of another process: those of one take turns."""
    async with opened("web", settings) as process, http_client(process) as http:
        yield http


async def dimensions(swarm: Swarm) -> dict[str, dict[str, Any]]:
    answer = await told(swarm.http, "/api/dimension/list", tag="swarm")
    return {row["name"]: row for row in answer["dimensions"]}


# -- dimensions


async def test_dimensions_that_two_define_are_all_there(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile
) -> None:
    meanwhile(lambda: told(other, FREEZE, **HELD))

    made = await told(swarm.http, DEFINE, tag="swarm", dimensions=[DEPTH])

    assert (made["version"], made["added"]) == (3, ["DEPTH2"])
    found = await dimensions(swarm)
    assert {*found} == {*(d["name"] for d in DIMENSIONS), "DEPTH2"}
    assert found["LR"]["frozen_value"] == 0.01


async def test_a_freeze_is_decided_on_the_range_that_is_there(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile
) -> None:
    wider = {"name": "LR", "dtype": "float_log", "min": 1e-5, "max": 1.0}
    meanwhile(lambda: told(other, DEFINE, tag="swarm", dimensions=[wider]))

    await told(swarm.http, FREEZE, **HELD)

    held = (await dimensions(swarm))["LR"]
    assert (held["min"], held["max"], held["frozen_value"]) == (1e-5, 1.0, 0.01)


async def test_a_tag_that_an_agent_opens_meanwhile_is_not_opened_again_by_its_dimensions(
    client: httpx.AsyncClient, process: Process, other: httpx.AsyncClient, meanwhile: Meanwhile
) -> None:
    meanwhile(lambda: told(other, "/api/experiment/setup", tag="swarm", base_commit="abc1234"))

    made = await told(client, DEFINE, tag="swarm", dimensions=DIMENSIONS)

    assert (made["created"], made["version"]) == (False, 1)
    assert (await Tags(process.lab).get("swarm")).base_commit == "abc1234"
    assert len(await events_of(process, "tag.created")) == 1


async def test_what_was_measured_takes_no_freeze_back(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile
) -> None:
    await swarm.policy(**{"sampler": "thompson", "stopping.rule": "none", "keep_rule": "strict"})
    await searched(swarm, ENOUGH)
    meanwhile(lambda: told(other, FREEZE, **HELD))

    assert await told(swarm.http, "/api/dimension/measure") == {"results": {"swarm": ENOUGH}}

    held = (await dimensions(swarm))["LR"]
    assert (held["frozen_value"], held["n_samples"]) == (0.01, ENOUGH)
