"""Hypotheses over HTTP: the first ones, their evidence, and their populations."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.beliefs.rules.protocols import ARM_PRIORITY
from functions.kernel.process.lifecycle import Process
from state.hypotheses import Hypotheses
from state.noise import noise_key
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm
from tests.labs import asked, bearer, curl, dump, idea, open_tag, refused, registered, told, tried

ROOT = Path(__file__).parents[3]


@pytest.fixture
async def swarm(client: httpx.AsyncClient, process: Process) -> AsyncIterator[Swarm]:
    await told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    await told(client, "/api/hypothesis/bootstrap", tag="swarm")
    found = Swarm(client, process)
    yield found
    # `with_noise` says that more runs were repeated than were
    assert [told for told in await found.audited() if "degrees of freedom" not in told] == []


async def hypotheses(swarm: Swarm) -> dict[str, dict[str, Any]]:
    """By the dimension that each is about."""
    found = await told(swarm.http, "/api/hypothesis/list", tag="swarm", archived=True)
    return {h["dimensions"][0]: h for h in found["hypotheses"]}


async def learned(swarm: Swarm, run_id: str) -> list[str]:
    answer = await told(swarm.http, "/api/hypothesis/learn", tag="swarm", experiment_ids=[run_id])
    return list(answer["hypotheses"])


async def with_noise(swarm: Swarm) -> None:
    """As if 40 repeats had shown how far two runs of one config lie apart."""
    lab = swarm.process.lab
    await lab.command("HSET", noise_key(lab.keys, "swarm", None), "squares", 0.001, "df", 40)


async def test_a_run_counts_beside_a_run_of_the_reference_config(swarm: Swarm) -> None:
    """Reference runs come by themselves, every other run; what differs in one dimension is compared."""
    await with_noise(swarm)
    configs: dict[str, dict[str, Any]] = {}
    for nth in range(12):
        given = await swarm.next("w1")
        configs[given["run_id"]] = given["config_delta"]
        await swarm.result("w1", given["run_id"], 0.9 - nth / 1000)
        await learned(swarm, given["run_id"])

    found = await hypotheses(swarm)

    evidence = [
        e | {"about": name}
        for name, h in found.items()
        for e in (await asked(swarm.http, f"/api/hypothesis/{h['hypothesis_id']}?tag=swarm"))["evidence"]
    ]
    compared = [e for e in evidence if e["against"] == "reference"]
    assert compared
    for e in compared:
        run, reference = configs[e["experiment_id"]], configs[e["reference_id"]]
        assert {name for name in run if run[name] != reference[name]} == {e["about"]}
    assert len({(e["about"], e["reference_id"]) for e in compared}) == len(compared)
    outcomes = [e for e in evidence if e["outcome"] is not None]
    assert sum(h["n_experiments"] for h in found.values()) == len(outcomes)
    assert outcomes


async def test_a_run_is_learned_from_once_and_one_of_a_worker_s_own_choice_not_at_all(swarm: Swarm) -> None:
    run_id = await swarm.run("w1", 0.9)
    await learned(swarm, run_id)
    before = await hypotheses(swarm)
    assert await learned(swarm, run_id) == []
    assert await learned(swarm, await swarm.run_of("w1", 0.5, LR=0.05)) == []
    assert await hypotheses(swarm) == before


async def test_an_irrelevant_dimension_is_frozen_and_its_claim_reopened(swarm: Swarm) -> None:
    lab = swarm.process.lab
    claim = (await hypotheses(swarm))["OPTIMIZER"]["hypothesis_id"]
    settled = (await Hypotheses(lab).get("swarm", claim)).model_copy(
        update={"settled": "irrelevant", "contrasts": 60, "alpha": 31.0, "beta": 33.0, "n_experiments": 60}
    )
    await lab.command("HDEL", lab.keys("hypotheses", "swarm"), claim)
    text = settled.model_dump_json(exclude_none=True)
    await lab.command("HSET", lab.keys("archived_hypotheses", "swarm"), claim, text)
    asks = {"tag": "swarm", "hypothesis_id": claim}

    froze = await told(swarm.http, "/api/dimension/freeze-irrelevant", **asks)
    again = await told(swarm.http, "/api/dimension/freeze-irrelevant", **asks)

    assert (froze["dimension"], again["dimension"]) == ("OPTIMIZER", None)
    [found] = [d for d in await dimensions(swarm) if d["name"] == "OPTIMIZER"]
    assert (found["frozen"], found["frozen_value"]) == (True, settled.reference_config["OPTIMIZER"])
    assert claim in found["frozen_reason"]
    assert (await told(swarm.http, "/api/hypothesis/bootstrap", tag="swarm"))["added"] == []

    await told(swarm.http, "/api/dimension/unfreeze", tag="swarm", name="OPTIMIZER", reason="look again")
    reopened = await told(swarm.http, "/api/hypothesis/reopen", tag="swarm", name="OPTIMIZER")

    assert reopened["hypotheses"] == [claim]
    anew = (await hypotheses(swarm))["OPTIMIZER"]
    assert (anew["settled"], anew["posterior_mean"], anew["n_experiments"]) == (None, 0.5, 0)


async def test_runs_that_are_compared_are_not_stopped_and_a_worker_s_own_choice_is(swarm: Swarm) -> None:
    await swarm.policy(**{"stopping.rule": "median", "stopping.warmup_runs": 0, "stopping.min_peers": 1})
    for worker in ("w1", "w2"):
        await swarm.join(worker)
    good = (await swarm.next("w1"))["run_id"]
    await swarm.tick(good, 0.2, 0.9)
    await swarm.result("w1", good, 0.9)

    bad = (await swarm.next("w2"))["run_id"]
    own = (await swarm.http.post("/runs/start/w2", json={"LR": 0.05})).json()["run_id"]

    assert await swarm.tick(bad, 0.2, 3.0) == {}
    assert (await swarm.tick(own, 0.2, 4.0))["action"] == "stop"
    assert [(await swarm.record(run)).is_compared for run in (good, bad, own)] == [True, True, False]


async def claims_with_workers(swarm: Swarm) -> set[str]:
    return {p["hypothesis_id"] for p in (await asked(swarm.http, "/populations"))["populations"]}


async def proposed(swarm: Swarm, **proposal: Any) -> dict[str, Any]:
    return await told(swarm.http, "/api/hypothesis/propose", tag="swarm", proposal=proposal)


async def test_a_proposal_that_says_what_another_says_is_refused_and_changes_nothing(swarm: Swarm) -> None:
    claim = {"statement": "a lower LR trains better", "config_constraint": {"LR": {"max": 0.001}}}
    dry = await told(swarm.http, "/api/hypothesis/gate", tag="swarm", proposal=claim)
    accepted = await proposed(swarm, **claim)
    before = await dump(swarm.process.lab)

    again = await proposed(swarm, **claim)
    said_otherwise = await proposed(swarm, **{**claim, "statement": "smaller LR values train better"})
    wrong = await proposed(swarm, statement="a huge LR is best", config_constraint={"LR": 7})

    assert (dry["accepted"], dry["hypothesis_id"]) == (True, None)
    assert accepted["reason"] == "schema_valid_and_novel"
    assert (again["reason"], again["duplicate_of"]) == ("duplicate_statement", accepted["hypothesis_id"])
    assert (said_otherwise["accepted"], said_otherwise["reason"]) == (False, "duplicate_semantic")
    assert (wrong["reason"], wrong["hypothesis_id"]) == ("invalid_constraint", None)
    assert await dump(swarm.process.lab) == before


async def test_a_model_s_claim_has_workers_from_the_next_allocation(swarm: Swarm) -> None:
    agent = await bearer(swarm.process, "ann", "agent")
    body = {"tag": "swarm", "proposal": {"statement": "LR 0.01 is best"}}
    claim = (await curl(swarm.http, "/api/hypothesis/propose", body, **agent)).json()["hypothesis_id"]
    swarm.http.headers.update(await bearer(swarm.process, "op", "operator"))
    assert claim not in await claims_with_workers(swarm)
    await learned(swarm, await swarm.run("w1", 0.9))
    assert claim in await claims_with_workers(swarm)
    shown = await asked(swarm.http, f"/api/hypothesis/{claim}?tag=swarm")
    assert shown["hypothesis"]["source"] == "llm_proposed"


async def test_one_test_decides_a_claim_and_frees_its_workers(swarm: Swarm) -> None:
    """Both values of OPTIMIZER run twice, all else at the reference config; adam wins by the threshold."""
    spec: dict[str, Any] = {"type": "single_factor_effect", "variable": "OPTIMIZER"}
    spec |= {"values": ["adam", "sgd"], "min_runs_per_cell": 2, "decision_rule": {"threshold": 0.05}}
    accepted = await proposed(swarm, statement="adam beats sgd here", phase="validation", test_spec=spec)
    claim = accepted["hypothesis_id"]
    for nth in range(8):
        await swarm.join(f"w{nth}")
    cells, shown = list[dict[str, Any]](), dict[str, Any]()
    for turn in range(40):
        worker = f"w{turn % 8}"
        given = await swarm.next(worker)
        config = given["config_delta"]
        if given["hypothesis_id"] == claim:
            cells.append(config)
            assert (given["population_strategy"], given["priority"]) == ("validate", ARM_PRIORITY)
        await swarm.result(worker, given["run_id"], 0.8 if config["OPTIMIZER"] == "adam" else 0.9)
        await learned(swarm, given["run_id"])
        await told(swarm.http, "/api/swarm/refill", tag="swarm")
        shown = await asked(swarm.http, f"/api/hypothesis/{claim}?tag=swarm")
        if shown["hypothesis"]["settled"]:
            break

    assert (shown["hypothesis"]["settled"], shown["hypothesis"]["n_experiments"]) == ("supported", 1)
    assert [e["against"] for e in shown["evidence"]] == ["test"]
    assert Counter(config["OPTIMIZER"] for config in cells) == {"adam": 2, "sgd": 2}
    assert len({(config["LR"], config["DEPTH"]) for config in cells}) == 1
    await learned(swarm, await swarm.run("w1", 0.9))
    assert claim not in await claims_with_workers(swarm)


async def test_an_agent_s_runs_are_evidence_for_a_claim(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client)
    claim = {"statement": "wider layers learn faster"}
    added = await told(client, "/api/hypothesis/propose", tag="mar11", proposal=claim)
    name = added["hypothesis_id"]
    await tried(client, 1.0)

    for value in (0.9, 0.95, 0.8):
        verdict = await tried(client, value, hypothesis_id=name)
        await told(client, "/api/hypothesis/learn", tag="mar11", experiment_ids=[verdict["experiment_id"]])
    crash = await registered(client, hypothesis_id=name)
    await told(client, "/api/experiment/crash", experiment_id=crash, error="boom")
    await told(client, "/api/hypothesis/learn", tag="mar11", experiment_ids=[crash])

    found = await asked(client, f"/api/hypothesis/{name}?tag=mar11")
    assert [e["outcome"] for e in found["evidence"]] == [1.0, 0.0, 1.0, 0.0]
    told_of = await told(client, "/api/hypothesis/history", tag="mar11", hypothesis_id=name)
    points = [told_of["start"], *(step["after"] for step in told_of["steps"])]
    assert [p["n"] for p in points] == [0, 1, 2, 3, 4]
    assert [p["mean"] for p in points] == pytest.approx([0.5, 0.6, 0.5, 4 / 7, 0.5])
    assert all(p["low"] < p["mean"] < p["high"] for p in points)
    times = [step["at"] for step in told_of["steps"]]
    assert times == sorted(times)
    assert told_of["steps"][0]["evidence"]["experiment_id"] == "mar11-2"
    [belief] = (await told(client, "/api/report/brief", tag="mar11"))["beliefs"]
    told_of_it = {"hypothesis_id": name, "status": "active", "posterior_mean": 0.5, "n_experiments": 4}
    assert belief == told_of_it | claim
    await refused(client, 404, "/api/experiment/register", **idea(hypothesis_id="hyp_000000"))


async def test_every_call_of_the_page_does_what_it_says(swarm: Swarm) -> None:
    claim = (await hypotheses(swarm))["LR"]["hypothesis_id"]
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "beliefs.md").read_text(), re.S)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    calls = [words[2:] for words in lines if words]

    for function, *options in calls:
        fields: dict[str, Any] = {
            name[2:].replace("-", "_"): value for name, value in zip(options[::2], options[1::2], strict=True)
        }
        body = fields | {"proposal": json.loads(fields["proposal"])} if "proposal" in fields else fields
        if "hypothesis_id" in body:
            body["hypothesis_id"] = claim
        invoker = swarm.process.invoker
        answer = await invoker.call(function, body, invoker.system(function))
        assert getattr(answer, "accepted", True), answer


async def dimensions(swarm: Swarm) -> list[dict[str, Any]]:
    return list((await told(swarm.http, "/api/dimension/list", tag="swarm"))["dimensions"])
