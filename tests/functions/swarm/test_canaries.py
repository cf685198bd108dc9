"""A dimension that an agent proposes, over HTTP: counted while the search stalls, tried, promoted or reverted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from functions.swarm.rules.trial_proposals import CYCLE, LEAST_RESULTS, MOST_LISTED, MOST_OF_ONE
from functions.swarm.rules.trial_verdicts import JUDGED_AFTER, JUDGED_BY, LEAST_VARIED
from state.dimension_proposals import DimensionProposals
from tests.conftest import http_client
from tests.functions.pi.test_programs_by_models import SAID, author_process
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm
from tests.labs import asked, bearer, curl, dump, events_of, problem, refused, told
from tests.logged import logged

PROPOSE = "/api/dimension/propose"
FOLLOW = "/api/dimension/follow-trials"
LISTED = "/dimension_proposals"
WARMUP: dict[str, Any] = {
    "name": "WARMUP",
    "dtype": "float",
    "min": 0.0,
    "max": 0.5,
    "default_value": 0.0,
    "rationale": "the loss jumps in the first steps",
    "train_py_line": "WARMUP = 0.0",
}
Truth = Callable[[Mapping[str, Any]], float]
"""What a run with a config measures."""


def flat(config: Mapping[str, Any]) -> float:
    return 1.0


def helped(config: Mapping[str, Any]) -> float:
    return 0.99 if "WARMUP" in config else 1.0


@pytest.fixture
async def swarm(client: httpx.AsyncClient, process: Process) -> AsyncIterator[Swarm]:
    await told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    found = Swarm(client, process)
    await found.policy(**{"sampler": "thompson", "stopping.rule": "none", "keep_rule": "strict"})
    await found.join("w1")
    yield found
    assert await found.audited() == []


async def searched(swarm: Swarm, runs: int, truth: Truth = flat) -> list[Mapping[str, Any]]:
    """The configs of so many runs, retests aside; after each what follows of its event is done."""
    configs = []
    for _ in range(runs):
        given = await swarm.next("w1")
        await swarm.result("w1", given["run_id"], truth(given["config_delta"]))
        await told(swarm.http, FOLLOW, tag="swarm")
        if "." not in given["run_id"]:  # no retest
            configs.append(given["config_delta"])
    return configs


async def proposed(swarm: Swarm, **changes: Any) -> dict[str, Any]:
    return await told(swarm.http, PROPOSE, tag="swarm", **(WARMUP | changes))


async def listed(swarm: Swarm) -> dict[str, dict[str, Any]]:
    found = await asked(swarm.http, LISTED)
    assert found["count"] == len(found["proposals"])
    return {each["name"]: each for each in found["proposals"]}


async def dimensions(swarm: Swarm) -> dict[str, dict[str, Any]]:
    found = await told(swarm.http, "/api/dimension/list", tag="swarm")
    return {each["name"]: each for each in found["dimensions"]}


async def on_trial(swarm: Swarm) -> None:
    """Let WARMUP be proposed in two stall cycles."""
    await searched(swarm, LEAST_RESULTS)
    assert (await proposed(swarm))["counted"]
    await searched(swarm, CYCLE)
    assert (await proposed(swarm))["counted"]
    await told(swarm.http, FOLLOW, tag="swarm")
    found = (await listed(swarm))["WARMUP"]
    assert found["state"] == "on_trial", found["reason"]


async def judged(swarm: Swarm, truth: Truth) -> list[Mapping[str, Any]]:
    """Search until the trial is over; the configs of its runs."""
    configs = await searched(swarm, JUDGED_AFTER, truth)
    while (await listed(swarm))["WARMUP"]["state"] == "on_trial":
        configs += await searched(swarm, 1, truth)
    return configs


async def test_a_dimension_that_helps_is_proposed_in_two_stalls_tried_and_promoted(
    swarm: Swarm, process: Process
) -> None:
    await on_trial(swarm)
    canary = (await dimensions(swarm))["WARMUP"]
    assert (canary["is_canary"], canary["canary_prob"], canary["importance"]) == (True, 0.12, 0.08)
    assert canary["default_value"] == 0.0

    configs = await judged(swarm, helped)

    found = (await listed(swarm))["WARMUP"]
    varied = sum("WARMUP" in config for config in configs)
    assert (found["state"], found["adopted"], found["eligible"]) == ("promoted", True, False)
    assert (found["signal_count"], found["varied"]) == (2, varied)
    assert found["gain"] == pytest.approx(0.01)
    assert varied >= LEAST_VARIED
    assert JUDGED_AFTER <= len(configs) < JUDGED_BY
    free = (await dimensions(swarm))["WARMUP"]
    assert (free["is_canary"], free["canary_prob"]) == (False, None)
    assert all("WARMUP" in config for config in await searched(swarm, 5))
    for kind in ("adopted", "promoted"):
        [event] = await events_of(process, f"dimension.{kind}")
        assert event["name"] == event["subject"] == "WARMUP"
    assert not await events_of(process, "dimension.reverted")


async def test_a_dimension_that_does_not_help_is_removed_and_stays_listed_with_the_reason(
    swarm: Swarm, process: Process
) -> None:
    await on_trial(swarm)

    await judged(swarm, flat)

    found = (await listed(swarm))["WARMUP"]
    assert (found["state"], found["adopted"]) == ("reverted", False)
    assert "none improved the best" in found["reason"]
    assert "WARMUP" not in await dimensions(swarm)
    assert not any("WARMUP" in config for config in await searched(swarm, 20))
    changes = [(e["added"], e["removed"]) for e in await events_of(process, "dimension.defined")][1:]
    assert changes == [(["WARMUP"], []), ([], ["WARMUP"])]
    again = await proposed(swarm)
    assert not again["counted"]
    assert again["proposal"]["state"] == "reverted"


async def test_a_run_whose_script_lacks_the_constant_counts_for_nothing_and_its_config_waits_for_nobody(
    swarm: Swarm,
) -> None:
    await on_trial(swarm)
    before = (await asked(swarm.http, "/health"))["experiments"]
    given = await swarm.next("w1")
    while "WARMUP" not in given["config_delta"]:
        await swarm.result("w1", given["run_id"], 1.0)
        before += 1
        given = await swarm.next("w1")

    lacks = {"error": "no such constant: WARMUP"}
    answers = [await swarm.result("w1", given["run_id"], None, **lacks) for _ in range(2)]

    assert [each["total_experiments"] for each in answers] == [before, before]
    assert (await swarm.record(given["run_id"])).status == "lost"
    assert (await swarm.next("w1"))["config_delta"] != given["config_delta"]
    shown = await asked(swarm.http, "/sync/w1")
    [canary] = [each for each in shown["dimensions"] if each["name"] == "WARMUP"]
    assert (canary["is_canary"], canary["default_value"]) == (True, 0.0)


async def test_what_is_wrong_with_a_proposal_is_shown_and_it_is_never_adopted(swarm: Swarm) -> None:
    await searched(swarm, LEAST_RESULTS)
    for _ in range(2):
        await proposed(
            swarm, name="WIDTH", dtype="int", min=1, max=4096, default_value=64, train_py_line=None
        )
        await proposed(swarm, name="lr", min=1e-4, max=0.1, default_value=0.001, train_py_line=None)
        await searched(swarm, CYCLE)

    found = await listed(swarm)

    assert found["WIDTH"]["reason"] == "its range spans 4095: at most 1024 may be tried"
    assert found["lr"]["reason"] == "the tag has LR already"
    assert {each["signal_count"] for each in found.values()} == {2}
    assert not any(each["eligible"] or each["adopted"] for each in found.values())
    assert (await dimensions(swarm)).keys() == {"LR", "DEPTH", "OPTIMIZER"}


async def test_dimensions_are_wanted_once_at_the_start_and_once_in_each_stall_cycle(
    swarm: Swarm, process: Process
) -> None:
    await searched(swarm, LEAST_RESULTS + 2 * CYCLE)

    wanted = await events_of(process, "dimension.wanted")

    assert [(each["why"], each["results"]) for each in wanted] == [
        ("start", 1),
        ("stall", 25),
        ("stall", 50),
        ("stall", 75),
    ]


@pytest.mark.parametrize("field", ["min", "max", "default_value"])
async def test_a_number_of_a_proposal_that_is_not_finite_is_refused_by_its_field(
    swarm: Swarm, field: str
) -> None:
    body = json.dumps({"tag": "swarm", **WARMUP, field: "@"}).replace('"@"', "NaN")

    document = problem(await curl(swarm.http, PROPOSE, body), 422)

    assert document["detail"] == f"{field} is not a finite number"
    assert "numbers have to be finite" in document["hint"]
    document = await refused(swarm.http, 422, PROPOSE, tag="swarm", **{**WARMUP, field: 10**400})
    assert document["detail"].startswith(f"{field}: Input should be a finite number")
    assert await listed(swarm) == {}


async def test_followers_at_the_same_moment_adopt_once_and_judge_once(swarm: Swarm, process: Process) -> None:
    async def followed() -> None:
        await asyncio.gather(*(told(swarm.http, FOLLOW, tag="swarm") for _ in range(8)))

    await searched(swarm, LEAST_RESULTS)
    await asyncio.gather(*(proposed(swarm, name=f"D{n}", train_py_line=None) for n in range(5)))
    await searched(swarm, CYCLE)
    await asyncio.gather(*(proposed(swarm, name=f"D{n}", train_py_line=None) for n in range(5)))
    await followed()

    first = [each for each in (await listed(swarm)).values() if each["adopted"]]
    assert len(first) == 1
    assert len(await events_of(process, "dimension.adopted")) == 1
    before = await dump(process.lab)
    await followed()
    assert await dump(process.lab) == before

    for _ in range(JUDGED_BY):
        given = await swarm.next("w1")
        await swarm.result("w1", given["run_id"], 1.0)
    await followed()

    assert len(await events_of(process, "dimension.reverted")) == 1
    assert {each["state"] for each in (await listed(swarm)).values() if each["adopted"]} == {"on_trial"}


async def test_runs_that_were_handed_out_before_a_trial_do_not_count_for_it(
    swarm: Swarm, process: Process
) -> None:
    late = ["w2", "w3"]
    for name in late:
        await swarm.join(name)
    early = [(name, (await swarm.next(name))["run_id"]) for name in late]
    await on_trial(swarm)
    proposals = DimensionProposals(process.lab)
    for name, run_id in early:
        await swarm.result(name, run_id, 1.0)
    crashed = await swarm.next("w3")
    await swarm.result("w3", crashed["run_id"], None, error="out of memory")

    before = await proposals.ran(await proposals.facts("swarm"))
    await swarm.run("w2", 1.0)
    after = await proposals.ran(await proposals.facts("swarm"))

    assert before == []
    assert [run.number for run in after] == [(await proposals.facts("swarm")).tag.last_number]


async def test_cleared_proposals_are_gone_but_for_those_on_trial(swarm: Swarm) -> None:
    await on_trial(swarm)
    await proposed(swarm, name="OTHER", train_py_line=None)

    gone = (await swarm.http.delete(LISTED)).json()

    assert gone == {"ok": True, "dropped": 1}
    assert (await listed(swarm)).keys() == {"WARMUP"}
    assert (await swarm.http.delete(LISTED)).json()["dropped"] == 0


async def test_in_a_full_list_the_oldest_proposal_makes_room(swarm: Swarm) -> None:
    for n in range(MOST_LISTED):
        await proposed(swarm, name=f"D{n}", train_py_line=None)

    await proposed(swarm)

    found = await listed(swarm)
    assert len(found) == MOST_LISTED
    assert "D0" not in found
    assert found.keys() >= {"D1", f"D{MOST_LISTED - 1}", "WARMUP"}


async def test_no_agent_fills_the_list_alone(swarm: Swarm, process: Process) -> None:
    ann, bob = [await bearer(process, name, "agent") for name in ("ann", "bob")]
    swarm.http.headers.update(ann)
    for n in range(MOST_OF_ONE):
        await proposed(swarm, name=f"D{n}", train_py_line=None)

    document = await refused(swarm.http, 409, PROPOSE, tag="swarm", **WARMUP)

    assert "'ann' has proposed 10 dimensions" in document["detail"]
    await proposed(swarm, name="D1", train_py_line=None)  # it is listed already
    swarm.http.headers.update(bob)
    assert (await proposed(swarm))["proposal"]["name"] == "WARMUP"
    swarm.http.headers.update(await bearer(process, "ed", "operator"))


async def test_a_draft_for_which_a_full_list_has_no_room_is_logged(
    swarm: Swarm, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await searched(swarm, LEAST_RESULTS)
    for n in range(MOST_LISTED):
        assert (await proposed(swarm, name=f"D{n}", train_py_line=None))["counted"]

    filled = SAID.filled("DimensionProposals", {"proposals": [WARMUP]})
    async with author_process(process, monkeypatch, filled) as (pi, _):
        with logged() as lines:
            call = pi.invoker.system("pi", "queue")
            answer = await pi.invoker.call("dimension::draft", {"tag": "swarm", "number": 1}, call)

    assert answer.model_dump()["proposed"] == []
    assert "'WARMUP'" in lines.one(logger="functions.swarm.proposals")["message"]
    await refused(swarm.http, 409, PROPOSE, tag="swarm", **WARMUP)


async def test_an_organiser_who_freezes_a_dimension_on_trial_ends_the_trial(swarm: Swarm) -> None:
    await on_trial(swarm)

    held = {"tag": "swarm", "name": "WARMUP", "value": 0.1, "reason": "known to be good"}
    await told(swarm.http, "/api/dimension/freeze", **held)
    await told(swarm.http, FOLLOW, tag="swarm")

    assert (await listed(swarm))["WARMUP"]["reason"] == "an organiser froze the dimension"
    assert {config["WARMUP"] for config in await searched(swarm, 5)} == {0.1}


async def test_the_policy_may_adopt_none(swarm: Swarm, process: Process) -> None:
    await swarm.policy(canaries="off")
    await searched(swarm, LEAST_RESULTS)
    await proposed(swarm)
    await searched(swarm, CYCLE)
    await proposed(swarm)
    await searched(swarm, 1)

    found = (await listed(swarm))["WARMUP"]

    assert (found["state"], found["eligible"], found["signal_count"]) == ("listed", False, 2)
    assert found["reason"] == "the tag's policy adopts none (canaries = off)"
    assert not await events_of(process, "dimension.wanted")


async def test_an_agent_proposes_to_its_own_tag_and_a_worker_to_none(process: Process) -> None:
    root = await bearer(process, "ops", "operator")
    agent = await bearer(process, "ada", "agent", tags=["swarm"])
    worker = await bearer(process, "gpu-1", "worker")
    async with http_client(process) as http:
        defined = {"tag": "swarm", "dimensions": DIMENSIONS}
        assert (await http.post("/api/dimension/define", json=defined, headers=root)).status_code == 200
        body = {"tag": "swarm", **WARMUP}

        by_agent = await http.post(PROPOSE, json=body, headers=agent)
        by_operator = await http.post(PROPOSE, json=body, headers=root)

        assert by_agent.json()["proposal"]["source"] == "agent"
        assert by_operator.json()["proposal"]["source"] == "operator"
        assert by_operator.json()["proposal"]["times"] == 2
        problem(await http.post(PROPOSE, json=body | {"tag": "elsewhere"}, headers=agent), 403)
        problem(await http.post(PROPOSE, json=body, headers=worker), 403)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "W" * 65},
        {"default_value": None},
        {"dtype": "text"},
        {"min": float("1e400")},
        {"train_py_line": "x" * 401},
        {"unknown": 1},
    ],
)
async def test_what_is_no_proposal_is_refused(swarm: Swarm, wrong: dict[str, Any]) -> None:
    await refused(swarm.http, 422, PROPOSE, tag="swarm", **(WARMUP | wrong))


async def test_of_a_tag_that_is_not_there_nothing_is_listed_followed_or_proposed(
    client: httpx.AsyncClient,
) -> None:
    assert await asked(client, LISTED) == {"count": 0, "proposals": []}
    problem(await client.get(LISTED, params={"tag": "nowhere"}), 404)
    await refused(client, 404, FOLLOW, tag="nowhere")
    await refused(client, 404, PROPOSE, tag="nowhere", **WARMUP)
