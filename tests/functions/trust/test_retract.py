"""A result that is taken back leaves everything that it was part of, and the best before it comes back."""

from __future__ import annotations

from typing import Any

import pytest

from functions.trust import retests
from state.noise import noise_key
from state.tags import Tags
from state.traces import Traces
from tests.functions.conftest import TagUnderTest
from tests.functions.experiments import test_baseline
from tests.labs import add_gpu, dump, open_tag, refused

WRONG: dict[str, Any] = {"commit_sha": "bad0bad"}
MEASURED: dict[str, Any] = {"gpu_class": "H100", "budget_seconds": 300, "evaluator_hash": "e" * 16}
"""As the worker of `trained` measures."""
WHY = "it was measured on the training data"


async def retracted(tag: TagUnderTest, name: str, reason: str = WHY) -> dict[str, Any]:
    return await tag.told("/api/experiment/retract", experiment_id=name, reason=reason)


async def best_of(tag: TagUnderTest) -> tuple[str, float]:
    found = await tag.best()
    return found["experiment_id"], found["val_bpb"]


# -- the best


async def test_one_wrong_number_does_not_fix_the_best_for_ever(tag: TagUnderTest) -> None:
    await open_tag(tag.client, base_commit="abc1234")
    await tag.tried(1.0, commit_sha="aaaaaaa")
    await tag.tried(0.0001, **WRONG)

    answer = await retracted(tag, "mar11-2")

    assert (answer["status"], answer["was"], answer["reason"]) == ("retracted", "keep", WHY)
    assert (answer["best_experiment_id"], answer["best_val_bpb"]) == ("mar11-1", 1.0)
    assert (answer["base_commit_sha"], answer["replayed"]) == ("aaaaaaa", False)
    assert await best_of(tag) == ("mar11-1", 1.0)
    assert (await tag.tried(0.99))["status"] == "keep"
    found = await tag.experiment("mar11-2")
    told_of = found["status"], found["retracted_from"], found["retracted_because"], found["val_bpb"]
    assert told_of == ("retracted", "keep", WHY, 0.0001)
    outcome = await tag.asked("/api/experiment/mar11-2/wait?timeout=0")
    assert (outcome["finished"], outcome["action"]) == (True, "git_reset")
    assert WHY in outcome["next"]
    late = await tag.refused(409, "/api/experiment/complete", experiment_id="mar11-2", val_bpb=0.5)
    assert late["experiment_status"] == "retracted"
    [event] = await tag.events("experiment.retracted")
    assert (event["subject"], event["best_experiment_id"], event["reason"]) == ("mar11-2", "mar11-1", WHY)
    bests = [e["subject"] for e in await tag.events("best.changed")]
    assert bests == ["mar11-1", "mar11-2", "mar11-1", "mar11-3"]


async def test_a_best_under_another_comparability_key_falls_back_to_the_one_before(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    await tag.tried(1.0, commit_sha="aaaaaaa", result={"gpu_class": "H100"})
    for value in (3.0, 2.0, 2.5):
        await tag.tried(value, result={"gpu_class": "A100"})

    answer = await retracted(tag, "mar11-3")

    assert (answer["best_experiment_id"], answer["best_val_bpb"]) == ("mar11-2", 3.0)
    assert (answer["retest"], answer["base_commit_sha"]) == (["mar11-4"], "aaaaaaa")
    assert await best_of(tag) == ("mar11-1", 1.0)


async def test_where_nothing_else_was_kept_the_first_of_the_rest_is_the_best(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    await tag.tried(0.0001, **WRONG)
    for value in (1.0, 1.1, 0.9):
        await tag.tried(value)

    answer = await retracted(tag, "mar11-1")

    assert (answer["best_experiment_id"], answer["best_val_bpb"]) == ("mar11-2", 1.0)
    assert answer["retest"] == ["mar11-4"]
    first = await tag.experiment("mar11-2")
    assert (first["status"], first["improved"], first["delta"]) == ("keep", True, 0.0)
    assert await tag.counts("total", "kept", "discarded", "retracted") == (3, 1, 2, 1)


async def test_without_any_other_result_the_tag_has_no_best(tag: TagUnderTest) -> None:
    await open_tag(tag.client, base_commit="abc1234")
    await tag.tried(0.0001, **WRONG)

    answer = await retracted(tag, "mar11-1")

    assert (answer["best_experiment_id"], answer["base_commit_sha"]) == (None, "abc1234")
    await tag.refused(404, "/api/experiment/best", tag="mar11")
    assert (await tag.summary())["categories"] == {}
    assert (await tag.told("/api/search/suggest", tag="mar11"))["total_experiments"] == 0
    again = await tag.tried(1.0)
    assert (again["status"], again["delta"]) == ("keep", 0.0)


# -- what lost to it


async def test_in_a_strict_tag_its_losers_run_again_and_the_best_is_kept(tag: TagUnderTest) -> None:
    await tag.open(keep_rule="strict")
    await tag.tried(1.0, result=MEASURED)
    for value in (0.0001, 0.9, 1.2):
        await tag.trained(value)

    answer = await retracted(tag, "mar11-2")
    steps = await tag.judge("mar11-2")

    assert answer["retest"] == ["mar11-3"]
    [event] = await tag.events("experiment.retracted")
    assert (event["retest"], steps) == (["mar11-3"], ["runagain mar11-3"])
    await tag.measured("mar11-3.2", 0.91)
    await tag.told("/api/experiment/retest", experiment_id="mar11-1")
    await tag.measured("mar11-1.2", 1.01)
    assert await best_of(tag) == ("mar11-3", 0.9)


async def test_a_chain_stands_on_the_best_before_its_incumbent(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.trained(1.0, commit_sha="abc1234")
    for name, value in (("mar11-1.2", 1.001), ("mar11-1.3", 0.9995)):
        await tag.measured(name, value)
    sure = await tag.trained(0.5)
    second = await tag.trained(0.4999)
    assert (sure["trust"], second["trust"]) == ("confirmed", "provisional")
    lost = await tag.trained(0.7)
    assert lost["status"] == "discard"

    answer = await retracted(tag, "mar11-2")

    assert (answer["best_experiment_id"], answer["retest"]) == ("mar11-3", ["mar11-4"])
    await tag.judge("mar11-2")
    await tag.measured("mar11-3.2", 1.9)
    assert (await tag.experiment("mar11-3"))["trust"] == "demoted"
    await tag.measured("mar11-4.2", 0.71)
    assert await best_of(tag) == ("mar11-4", 0.7)


# -- its retests


# -- noise, and the same code


async def test_later_runs_of_its_code_are_judged_without_it(tag: TagUnderTest) -> None:
    await open_tag(tag.client, policy={"near_miss_margin": 0.002})
    await tag.tried(1.0)
    await tag.tried(0.5, **WRONG)
    again = await tag.tried(1.001, **WRONG)
    third = await tag.tried(0.9, **WRONG)
    assert again["repeats_best"]
    assert third["judged_val_bpb"] == pytest.approx(2.401 / 3)

    answer = await retracted(tag, "mar11-2")

    assert answer["corrected"] == ["mar11-3", "mar11-4"]
    second, third = [await tag.experiment(f"mar11-{n}") for n in (3, 4)]
    assert (second["judged_val_bpb"], second["repeats_best"], second["reason"]) == (None, False, None)
    assert third["judged_val_bpb"] == pytest.approx(1.901 / 2)
    near = await tag.told("/api/experiment/near-misses", tag="mar11")
    assert [n["experiment_id"] for n in near["near_misses"]] == ["mar11-3"]
    assert answer["retest"] == ["mar11-4"]
    assert (await tag.lab.hash(noise_key(tag.lab.keys, "mar11", None)))["df"] == "1"


async def test_a_keep_by_the_mean_of_its_runs_and_others_has_to_be_retracted_first(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    await tag.tried(1.0)
    await tag.tried(1.2, **WRONG)
    assert (await tag.tried(0.5, **WRONG))["status"] == "keep"

    answer = await refused(
        tag.client, 409, "/api/experiment/retract", experiment_id="mar11-2", reason="wrong data"
    )

    assert answer["retract_first"] == "mar11-3"
    assert "retract mar11-3 first" in answer["hint"]
    await retracted(tag, "mar11-3")
    await retracted(tag, "mar11-2")
    assert await best_of(tag) == ("mar11-1", 1.0)


# -- the baseline


async def test_a_wrong_baseline_leaves_its_counter_and_the_tag_gets_another(tag: TagUnderTest) -> None:
    await test_baseline.opened(tag)
    waits = (await test_baseline.submitted(tag))["experiment_id"]
    await tag.leased()
    await test_baseline.ended(tag, "mar11-1", 0.0001)
    await tag.told("/api/experiment/stop", experiment_id=waits)
    await tag.told("/api/pool/dispatch")

    await retracted(tag, "mar11-1")

    record = await Tags(tag.lab).get("mar11")
    assert (record.baselines, record.kept, record.total, record.retracted) == (0, 0, 0, 1)
    assert (record.baseline_id, record.baseline_val_bpb) == (None, None)
    assert await tag.faults() == []
    later = await test_baseline.submitted(tag)
    assert later["experiment_id"] == "mar11-4"
    assert (await tag.experiment("mar11-3"))["baseline"]


async def test_runs_that_wait_for_a_retracted_baseline_wait_for_the_next(tag: TagUnderTest) -> None:
    await test_baseline.opened(tag)
    for _ in range(2):
        await test_baseline.submitted(tag)
    await tag.leased()
    await test_baseline.ended(tag, "mar11-1", 0.0001)
    assert await tag.leased() == ["mar11-2"]

    await retracted(tag, "mar11-1")
    await test_baseline.submitted(tag)

    assert (await tag.experiment("mar11-4"))["baseline"]
    assert await tag.faults() == []
    await tag.told("/api/experiment/stop", experiment_id="mar11-2")
    await add_gpu(tag.client, test_baseline.GPUS[1])
    assert await tag.leased() == ["mar11-4"]


async def test_the_baseline_s_value_is_that_of_the_next_run_of_its_code(tag: TagUnderTest) -> None:
    await test_baseline.opened(tag, baseline_first=False)
    for value in (0.5, 1.25):
        await tag.tried(value, commit_sha=test_baseline.BASE)

    await retracted(tag, "mar11-1")

    assert await best_of(tag) == ("mar11-2", 1.25)
    assert (await Tags(tag.lab).get("mar11")).baseline_val_bpb == 1.25


# -- branches


async def test_branches_that_stood_on_it_fall_back(tag: TagUnderTest) -> None:
    await tag.branch(target=1)
    await tag.grown(1.0)
    await tag.grown(0.0001)
    await tag.grown(1.5)
    waits = await tag.made(await tag.selected())
    [before] = (await tag.traces()).values()
    assert (before["base"], before["kept"], before["best_score"]) == ("mar11-2", 2, 0.0001)

    await retracted(tag, "mar11-2")

    [trace] = (await tag.traces()).values()
    assert (trace["base"], trace["tip"], trace["kept"], trace["length"]) == ("mar11-1", "mar11-3", 1, 3)
    [record] = await Traces(tag.lab).many([trace["trace_id"]])
    assert (record.best_score, record.since_best, record.scores) == (1.0, 1, "1.0 1.5")
    verdict = await tag.complete(waits, 0.9)
    assert (verdict["status"], verdict["branch_improved"]) == ("keep", True)
    assert (await tag.selected())["base_experiment_id"] == waits


async def test_a_long_branch_keeps_its_best_score(tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retests, "NODES_READ", 3)
    await tag.branch(target=1)
    for value in (1.0, 0.5, 1.2, 1.3, 1.4, 1.5):
        await tag.grown(value)

    await retracted(tag, "mar11-5")
    [stays] = await Traces(tag.lab).many(["mar11-t1"])
    await retracted(tag, "mar11-2")

    [trace] = await Traces(tag.lab).many(["mar11-t1"])
    assert (stays.best_score, stays.since_best) == (0.5, 4)
    assert (trace.best_score, trace.length) == (1.3, 6)


# -- who, and what not


async def test_the_same_retraction_again_gives_the_same_answer(tag: TagUnderTest) -> None:
    await open_tag(tag.client)
    await tag.tried(1.0)
    await tag.tried(0.0001, **WRONG)
    first = await retracted(tag, "mar11-2")
    before = await dump(tag.lab)

    again = await retracted(tag, "mar11-2")

    assert again == first | {"replayed": True}
    assert await dump(tag.lab) == before
    other = await tag.refused(409, "/api/experiment/retract", experiment_id="mar11-2", reason="another")
    assert WHY in other["detail"]


# -- at the same time


async def test_retests_of_a_retracted_keep_are_stopped_though_the_process_was_killed(
    tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tag.open()
    await tag.baseline(1.001, 0.9995)
    await tag.trained(0.9994)

    async def killed(*_: object) -> None:
        raise SystemError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(retests, "stop_retests", killed)
        asks = {"experiment_id": "mar11-2", "reason": "wrong"}
        died = await tag.client.post("/api/experiment/retract", json=asks)
    assert died.status_code == 500

    await tag.judge("mar11-2")

    assert [retest["status"] for retest in (await tag.shown("mar11-2"))["retests"]] == ["stopped"]
