"""trust::transfer runs a keep and its reference in pairs at a longer budget, in a tag of their own."""

from __future__ import annotations

from typing import Any

import pytest

from functions.trust.rules.sequential import e_values
from state.experiments import Experiments
from state.records import Transfer
from state.trust import Transfers
from tests.functions.conftest import GPUS, TagUnderTest
from tests.labs import add_gpu, open_tag, silence, waiting

INTO = "mar11-transfer1"


async def opened(tag: TagUnderTest) -> None:
    """mar11-1 with 1.0 and mar11-2, a keep, with 0.9."""
    await tag.open(keep_rule="strict")
    await tag.trained(1.0, commit_sha="abc1234", diff="")
    await tag.trained(0.9, diff="+ a change\n")


async def transfer(tag: TagUnderTest, **fields: Any) -> dict[str, Any]:
    fields = {"experiment_id": "mar11-2", "begin": True, **fields}
    return dict((await tag.told("/api/trust/transfer", **fields))["transfer"])


async def followed(tag: TagUnderTest) -> Transfer:
    """The transfer after its event handlers have run."""
    for path in ("follow-transfers", "follow-certificates", "follow-transfers"):
        await tag.told(f"/api/trust/{path}", tag=INTO)
    return (await Transfers(tag.lab).all())[-1]


async def measured(tag: TagUnderTest, name: str, value: float, seconds: float = 1205.0) -> None:
    """A worker trained this run of the transfer for so long."""
    e = await tag.begun(name)
    assert e.budget_s == 1200.0
    await tag.ended(e, value, wall_seconds=seconds, cpu_seconds=seconds)


async def pair(tag: TagUnderTest, candidate: float, reference: float) -> Transfer:
    """The transfer after the runs that wait for a worker measured this."""
    for e in await waiting(tag.lab):
        is_reference = (e.retest_of or e.experiment_id) == f"{INTO}-1"
        await measured(tag, e.experiment_id, reference if is_reference else candidate)
    return await followed(tag)


async def test_a_gain_on_every_seed_transfers(tag: TagUnderTest) -> None:
    await opened(tag)
    plan = await tag.told("/api/trust/transfer", experiment_id="mar11-2")
    assert (plan["transfer"]["state"], plan["hours"]) == ("planned", pytest.approx(40 * 1200 / 3600))
    assert await Transfers(tag.lab).all() == []

    begun = await transfer(tag)
    assert (begun["state"], begun["reference"], begun["candidate"]) == ("running", f"{INTO}-1", f"{INTO}-2")
    found = await pair(tag, 0.8, 0.9)
    nth = 1
    while found.state == "running":
        assert found.pairs == nth
        found, nth = await pair(tag, 0.8 + nth / 100, 0.9 + nth / 100), nth + 1

    assert (found.state, found.pairs) == ("transfers", 5)
    assert found.longer_gain == pytest.approx(0.1)
    assert found.e_value == pytest.approx(e_values([0.1] * 5)[-1])
    refused = await tag.refused(409, "/api/trust/certify", experiment_id=f"{INTO}-2")
    assert "is a run of a transfer" in refused["detail"]
    await followed(tag)
    shown = (await tag.shown("mar11-2"))["transfers"]
    assert [each["state"] for each in shown] == ["transfers"]
    night = await tag.told("/api/report/night", tag="mar11")
    assert night["transfers"] == shown
    [told] = await tag.events("transfer.begun")
    assert (told["into"], told["budget_s"]) == (INTO, 1200)
    [told] = await tag.events("transfer.decided")
    assert (told["state"], told["pairs"]) == ("transfers", 5)


async def test_its_runs_are_of_the_same_code_and_compete_with_nothing(tag: TagUnderTest) -> None:
    await opened(tag)
    await tag.trained(0.901)
    seen = ("/api/experiment/best", "/api/report/summary", "/api/experiment/near-misses")
    before = [await tag.told(path, tag="mar11") for path in seen]
    await transfer(tag)
    while (await pair(tag, 0.1, 0.9)).state == "running":
        pass

    assert [await tag.told(path, tag="mar11") for path in seen] == before
    for name, first in ((f"{INTO}-1", "mar11-1"), (f"{INTO}-2", "mar11-2")):
        copy, own = await tag.shown(name), await tag.shown(first)
        assert copy["diff"] == own["diff"]
        assert copy["experiment"]["commit_sha"] == own["experiment"]["commit_sha"]
    assert (await tag.experiment("mar11-2"))["retests"] == 0
    assert await tag.faults() == []


async def test_asked_again_and_told_twice_it_goes_on_where_it_was(tag: TagUnderTest) -> None:
    await opened(tag)
    first = await transfer(tag)

    assert await transfer(tag) == first
    for _ in range(2):
        await followed(tag)
    await pair(tag, 0.8, 0.9)
    for _ in range(2):
        await followed(tag)

    assert len(await Transfers(tag.lab).all()) == 1
    assert [e.experiment_id for e in await waiting(tag.lab)] in (
        [f"{INTO}-1.2", f"{INTO}-2.2"],
        [f"{INTO}-2.2", f"{INTO}-1.2"],
    )
    assert len(await tag.events("transfer.begun")) == 1


@pytest.mark.parametrize("lives", range(2))
async def test_a_process_killed_between_its_steps_is_followed_by_another(
    tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch, lives: int
) -> None:
    """Killed as it opens the tag, and between the two codes."""
    await opened(tag)
    submit, left = Experiments.submit, iter([True] * lives + [False])

    class Killed(Exception):
        pass

    async def killed(*given: Any, **named: Any) -> Any:
        if next(left, True):
            return await submit(*given, **named)
        raise Killed

    monkeypatch.setattr(Experiments, "submit", killed)
    with pytest.raises(Killed):
        await tag.process.invoker.call(
            "trust::transfer", {"experiment_id": "mar11-2", "begin": True}, tag.process.invoker.system("test")
        )

    found = await followed(tag)

    assert (found.reference, found.candidate) == (f"{INTO}-1", f"{INTO}-2")
    assert len(await waiting(tag.lab)) == 2


@pytest.mark.parametrize("name", ["mar11-1", "mar11-2"])
@pytest.mark.parametrize("pairs", [0, 1, 5])
async def test_a_retraction_ends_it_and_its_label(tag: TagUnderTest, name: str, pairs: int) -> None:
    await opened(tag)
    await transfer(tag)
    for _ in range(pairs):
        await pair(tag, 0.8, 0.9)

    await tag.told("/api/experiment/retract", experiment_id=name, reason="a wrong data set")
    await tag.told("/api/trust/follow-transfers", tag="mar11")
    found = await followed(tag)

    assert (found.state, found.reason) == ("inconclusive", f"{name} was retracted")
    assert await waiting(tag.lab) == []
    assert (await tag.events("transfer.decided"))[-1]["state"] == "inconclusive"


async def test_both_codes_run_on_one_gpu_of_the_keep_s_class(tag: TagUnderTest) -> None:
    await opened(tag)
    await add_gpu(tag.client, "host:other", gpu_name="L4")
    one = await transfer(tag)
    [pinned] = {(await tag.experiment(one[side]))["pinned_gpu"] for side in ("candidate", "reference")}
    assert pinned in GPUS


async def test_what_cannot_be_tried_is_refused_with_the_reason_and_changes_nothing(tag: TagUnderTest) -> None:
    await opened(tag)
    path = "/api/trust/transfer"

    for name, budget, status, said in (
        ("mar11-9", "4x", 404, "mar11-9"),
        ("mar11-1", "4x", 409, "compared with nothing"),
        ("mar11-2", "1x", 422, "not a longer budget"),
        ("mar11-2", "long", 422, "budget"),
    ):
        refusal = await tag.refused(status, path, begin=True, experiment_id=name, budget=budget)
        assert said in refusal["detail"]
    for gpu in GPUS:
        await silence(tag.lab, gpu, 100_000)
    refusal = await tag.refused(409, path, experiment_id="mar11-2", begin=True)
    assert "no worker of the lab serves the class 'H100'" in refusal["detail"]
    assert await Transfers(tag.lab).all() == []


async def test_guards_and_the_hidden_split_hold_there_and_a_longest_time_does_not(tag: TagUnderTest) -> None:
    policy = {"baseline_first": False, "keep_rule": "strict", "budgets.max_timeout_s": 400}
    guards = {"guards.peak_vram_mb": 40_000}
    await open_tag(
        tag.client,
        base_commit="abc1234",
        policy=policy | guards,
        evaluator_command="python prepare.py",
        hidden_split=True,
    )
    await add_gpu(tag.client, labels={"isolation": "landlock"})
    for value, diff in ((1.0, ""), (0.9, "+ a change\n")):
        e = await tag.begun(await tag.submit(diff=diff))
        await tag.ended(e, value, hidden=value, score="trusted", peak_vram_mb=1.0)

    one = await transfer(tag, against="mar11-1")

    assert one["state"] == "running", one["reason"]
    e = await tag.begun(f"{INTO}-1")
    assert (e.is_confined, e.timeout_s) == (True, 2460)
    policy = (await tag.told("/api/search/policy", tag=INTO))["policy"]
    assert policy["guards"]["peak_vram_mb"] == 40_000


async def test_a_tag_of_that_name_is_left_alone(tag: TagUnderTest) -> None:
    await opened(tag)
    await open_tag(tag.client, INTO)
    assert (await transfer(tag))["into"] == "mar11-transfer2"
