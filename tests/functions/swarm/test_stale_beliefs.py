"""What a swarm may vary and believes is decided again if another process has changed it meanwhile."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from functions.swarm.rules.trial_proposals import CYCLE, LEAST_RESULTS
from state.experiments import Experiments
from state.experiments.ending import EVIDENCE_KEPT
from state.settings import Settings
from state.tags import Tags
from tests.conftest import http_client
from tests.functions.swarm.test_canaries import FOLLOW, LISTED, PROPOSE, WARMUP, listed, searched
from tests.functions.swarm.test_measuring import ENOUGH
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm
from tests.labs import before_next_commit, events_of, told

DEFINE, FREEZE, LEARN = "/api/dimension/define", "/api/dimension/freeze", "/api/hypothesis/learn"
DEPTH = {"name": "DEPTH2", "dtype": "int", "min": 4, "max": 24}
CHECKPOINT = "/api/journal/checkpoint"
HELD = {"tag": "swarm", "name": "LR", "value": 0.01, "reason": "x"}
Meanwhile = Callable[[Callable[[], Awaitable[Any]]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Let something happen once, between the reads of the next change and its commit."""
    return lambda happen: before_next_commit(monkeypatch, happen)


@pytest.fixture
async def swarm(client: httpx.AsyncClient, process: Process) -> Swarm:
    await told(client, DEFINE, tag="swarm", dimensions=DIMENSIONS)
    found = Swarm(client, process)
    await found.policy(**{"sampler": "thompson", "stopping.rule": "none", "keep_rule": "strict"})
    return found


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
    await searched(swarm, ENOUGH, lambda config: 1.0 + float(config["LR"]))
    meanwhile(lambda: told(other, FREEZE, **HELD))

    assert await told(swarm.http, "/api/dimension/measure") == {"results": {"swarm": ENOUGH}}

    held = (await dimensions(swarm))["LR"]
    assert (held["frozen_value"], held["n_samples"]) == (0.01, ENOUGH)


# -- proposed dimensions


async def test_a_dimension_that_two_propose_is_counted_twice(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile
) -> None:
    meanwhile(lambda: told(other, PROPOSE, tag="swarm", **WARMUP))

    found = await told(swarm.http, PROPOSE, tag="swarm", **WARMUP)

    assert found["proposal"]["times"] == 2
    assert (await listed(swarm))["WARMUP"]["times"] == 2


async def test_a_proposal_that_comes_in_while_the_list_is_cleared_is_dropped_with_the_others(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile
) -> None:
    await told(swarm.http, PROPOSE, tag="swarm", **WARMUP)
    meanwhile(lambda: told(other, PROPOSE, tag="swarm", **WARMUP | {"name": "COOLDOWN"}))

    cleared = (await swarm.http.request("DELETE", LISTED)).json()

    assert cleared == {"ok": True, "dropped": 2}
    assert await listed(swarm) == {}


@pytest.mark.parametrize("path", [FREEZE, FOLLOW])
async def test_a_trial_begins_once_and_beside_what_was_frozen_meanwhile(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile, path: str
) -> None:
    for results in (LEAST_RESULTS, CYCLE):
        await searched(swarm, results)
        await told(swarm.http, PROPOSE, tag="swarm", **WARMUP | {"train_py_line": None})
    meanwhile(lambda: told(other, path, **(HELD if path == FREEZE else {"tag": "swarm"})))

    await told(swarm.http, FOLLOW, tag="swarm")

    found = await dimensions(swarm)
    assert (found["LR"]["frozen"], found["WARMUP"]["is_canary"]) == (path == FREEZE, True)
    assert len(await events_of(swarm.process, "dimension.adopted")) == 1


# -- hypotheses

CLAIM = {"tag": "swarm", "proposal": {"statement": "lower LR values train better"}}
DEEP = {"statement": "deep networks beat shallow ones", "config_constraint": {"DEPTH": {"min": 6}}}


async def test_a_claim_that_two_propose_is_entered_once(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile
) -> None:
    meanwhile(lambda: told(other, "/api/hypothesis/propose", **CLAIM))

    found = await told(swarm.http, "/api/hypothesis/propose", **CLAIM)

    assert not found["accepted"]
    [entered] = (await told(swarm.http, "/api/hypothesis/list", tag="swarm"))["hypotheses"]
    assert found["duplicate_of"] == entered["hypothesis_id"]


async def test_a_claim_about_a_dimension_that_is_removed_meanwhile_is_refused(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile
) -> None:
    rest = [d for d in DIMENSIONS if d["name"] != "DEPTH"]
    assert (await told(swarm.http, "/api/hypothesis/gate", tag="swarm", proposal=DEEP))["accepted"]
    meanwhile(lambda: told(other, DEFINE, tag="swarm", dimensions=rest, replace=True))

    found = await told(swarm.http, "/api/hypothesis/propose", tag="swarm", proposal=DEEP)

    assert not found["accepted"]
    assert (await told(swarm.http, "/api/hypothesis/list", tag="swarm"))["hypotheses"] == []


@pytest.mark.parametrize("same", [True, False])
async def test_runs_that_two_learn_from_count_once_each(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile, *, same: bool
) -> None:
    await told(swarm.http, "/api/hypothesis/bootstrap", tag="swarm")
    first, second = [await swarm.run("w1", 1.0 + n / 100) for n in range(2)]
    lab = swarm.process.lab
    beliefs = lab.keys("beliefs", "swarm")
    await lab.command("HSET", beliefs, "results", 98)
    theirs = {"tag": "swarm", "experiment_id": first if same else second}
    meanwhile(lambda: told(other, LEARN, **theirs))

    await told(swarm.http, LEARN, tag="swarm", experiment_id=first)

    assert int((await lab.hash(beliefs))["results"]) == (99 if same else 100)
    due = await events_of(swarm.process, "journal.due")
    assert [event["results"] for event in due] == ([] if same else [100])


# -- journal, late results


async def test_a_checkpoint_is_of_the_beliefs_that_it_is_written_with(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile
) -> None:
    await told(swarm.http, "/api/hypothesis/bootstrap", tag="swarm")
    run = await swarm.run("w1", 1.0)
    meanwhile(lambda: told(other, LEARN, tag="swarm", experiment_id=run))

    written = await told(swarm.http, CHECKPOINT, tag="swarm")

    [event] = await events_of(swarm.process, "journal.written")
    assert (written["number"], event["results"]) == (1, 1)


async def test_a_checkpoint_that_another_process_writes_meanwhile_is_not_written_again(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile
) -> None:
    await told(swarm.http, "/api/hypothesis/bootstrap", tag="swarm")
    meanwhile(lambda: told(other, CHECKPOINT, tag="swarm"))

    found = await told(swarm.http, CHECKPOINT, tag="swarm")

    assert (found["written"], found["number"]) == (False, 1)
    assert (await told(swarm.http, "/api/journal/list"))["count"] == 1


async def test_late_results_of_two_are_kept_up_to_a_hundred(process: Process, meanwhile: Meanwhile) -> None:
    experiments, result = Experiments(process.lab), {"op": "crash"}
    for n in range(EVIDENCE_KEPT - 1):
        await experiments.keep_evidence("mar11-1", f"digest {n}", result)
    meanwhile(lambda: experiments.keep_evidence("mar11-1", "first", result))

    await experiments.keep_evidence("mar11-1", "second", result)

    kept = await process.lab.hash(process.lab.keys("evidence", "mar11-1"))
    assert len(kept) == EVIDENCE_KEPT
    assert "first" in kept
    assert "second" not in kept


# -- waiting configs


async def test_configs_are_made_of_the_dimensions_that_are_there(
    swarm: Swarm, other: httpx.AsyncClient, meanwhile: Meanwhile
) -> None:
    await swarm.join("w1")
    meanwhile(lambda: told(other, FREEZE, **HELD))

    count = (await told(swarm.http, "/api/swarm/refill", tag="swarm"))["waiting"]["swarm"]

    lab = swarm.process.lab
    [queue] = [key async for key in lab.scan("proposals:swarm:*")]
    texts = await lab.command("ZRANGE", queue, 0, -1)
    assert len(texts) == count > 0
    assert {json.loads(text)["config"]["LR"] for text in texts} == {0.01}
