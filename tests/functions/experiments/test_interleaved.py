"""Changes between a decision's reads and its move, and processes that are killed after a move."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

import functions.trust.retests
from functions.kernel.contract import On
from functions.kernel.table import table
from state.client import Lab
from state.codes import code_of
from state.experiments import Experiments
from state.noise import noise_key, runs_at
from tests.functions.conftest import TagUnderTest
from tests.functions.trust.test_confirmed import selected
from tests.labs import add_gpu, idea


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], Awaitable[object]]], None]:
    """Let something happen once, right before a method of `Experiments` is called."""

    def let(method: str, happen: Callable[[], Awaitable[object]]) -> None:
        own = getattr(Experiments, method)

        async def late(self: Experiments, *given: Any, **named: Any) -> Any:
            monkeypatch.setattr(Experiments, method, own)
            await happen()
            return await own(self, *given, **named)

        monkeypatch.setattr(Experiments, method, late)

    return let


async def retests_of(tag: TagUnderTest, name: str) -> list[dict[str, Any]]:
    return list((await tag.asked(f"/api/experiment/{name}"))["retests"])


async def largest_gain(tag: TagUnderTest) -> str | None:
    return (await tag.lab.hash(tag.lab.keys.tag("mar11"))).get("largest_gain")


async def judge_heard(tag: TagUnderTest, kind: str) -> None:
    """Judge as the events of this type have it done."""
    bound = [t for t in table()["experiment::judge_retests"].triggers if isinstance(t, On)]
    assert any(kind in trigger.events for trigger in bound)
    for event in await tag.events(kind):
        await tag.judge(event["subject"])


@pytest.mark.parametrize("method", ["run_facts", "comparison"])
async def test_a_claim_that_two_processes_measure_at_once_counts_once(
    tag: TagUnderTest, before: Callable[..., None], method: str
) -> None:
    await tag.open(keep_rule="strict")
    await tag.trained(1.0)
    claim = await tag.tried(0.5)
    await tag.judge(claim["experiment_id"])
    await tag.measured("mar11-2.2", 1.5, unjudged=True)
    before(method, lambda: tag.judge("mar11-2.2"))

    await tag.judge("mar11-2.2")

    assert (await tag.standing("mar11-2"))[0] == "discard"


async def branch_keep_to_rise(tag: TagUnderTest) -> None:
    """The keep of a branch, mar11-3, is the best as soon as its retest is judged."""
    await tag.open(traces={"mode": "multi", "target_traces": 2, "max_parallel": 4})
    first = await selected(tag)
    await tag.trained(1.0, commit_sha="abc1234", selection_id=first["selection_id"])
    for nth, value in ((2, 1.001), (3, 0.9995)):
        await tag.measured(f"mar11-1.{nth}", value)
    another = await selected(tag, intent="extend")
    await tag.trained(0.9960, selection_id=another["selection_id"])
    await tag.trained(0.9970, selection_id=(await selected(tag))["selection_id"])
    await tag.measured("mar11-2.2", 1.003)
    await tag.measured("mar11-3.2", 0.9975, unjudged=True)


async def test_a_keep_that_rises_while_it_is_taken_back_leaves_every_index(
    tag: TagUnderTest, before: Callable[..., None]
) -> None:
    """A branch's keep becomes the best between the retraction's reads."""
    await branch_keep_to_rise(tag)
    before("retraction_facts", lambda: tag.judge("mar11-3.2"))

    await tag.told("/api/experiment/retract", experiment_id="mar11-3", reason="wrong")

    assert await tag.best_id() == "mar11-1"


def between_reads(
    monkeypatch: pytest.MonkeyPatch, name: str, nth: int, happen: Callable[[], Awaitable[None]]
) -> None:
    """Let something happen once, after the nth of the reads that a retraction of this experiment is decided on."""
    together = Lab.pipeline

    async def apart(self: Lab, commands: Sequence[Sequence[Any]]) -> list[Any]:
        if ("HGETALL", self.keys.experiment(name)) not in commands or len(commands) < 9:
            return await together(self, commands)
        monkeypatch.setattr(Lab, "pipeline", together)
        first = await together(self, commands[:nth])
        await happen()
        return first + await together(self, commands[nth:])

    monkeypatch.setattr(Lab, "pipeline", apart)


@pytest.mark.parametrize("nth", [0, 2, 4])
async def test_a_keep_that_rises_between_two_of_a_retraction_s_reads_leaves_every_index(
    tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    await branch_keep_to_rise(tag)
    steps = list[str]()

    async def rise() -> None:
        steps.extend(await tag.judge("mar11-3.2"))

    between_reads(monkeypatch, "mar11-3", nth, rise)
    await tag.told("/api/experiment/retract", experiment_id="mar11-3", reason="wrong")

    assert "promote mar11-3" in steps
    assert await tag.best_id() == "mar11-1"


@pytest.mark.parametrize("nth", [5, 9])
async def test_a_retest_that_ends_between_two_of_a_retraction_s_reads_leaves_the_noise_with_it(
    tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    await tag.open()
    await tag.baseline(1.001, 0.9995)
    await tag.trained(0.9994)
    again = await tag.begun("mar11-2.2")
    ended = list[dict[str, Any]]()

    async def end() -> None:
        ended.append(await tag.report(again, 0.9996))

    between_reads(monkeypatch, "mar11-2", nth, end)
    await tag.told("/api/experiment/retract", experiment_id="mar11-2", reason="wrong")

    e = await tag.experiments.get("mar11-2")
    noise, code = noise_key(tag.lab.keys, "mar11", e.gpu_class), code_of(e, None)
    assert ended[0]["status"] == "measured"
    assert await tag.lab.command("ZRANGE", runs_at(noise, code), 0, -1) == []
    assert await tag.lab.command("HGET", noise, code) is None


async def test_a_result_that_ends_while_the_best_is_worth_less_is_its_rival(
    tag: TagUnderTest, before: Callable[..., None]
) -> None:
    await tag.open()
    await tag.trained(0.0001, commit_sha="abc1234")
    await tag.measured("mar11-1.2", 0.95)
    await tag.told("/api/experiment/submit", **idea())
    again = await tag.begun("mar11-1.3")
    await tag.report(again, 0.951)
    await tag.free(again)
    rival = await tag.begun("mar11-2")
    before("judge", lambda: tag.report(rival, 0.9))

    await tag.judge("mar11-1.3")
    await tag.free(rival)
    await tag.judge("mar11-2")

    assert await retests_of(tag, "mar11-2")


async def test_claims_are_looked_at_by_the_event_of_a_keep_s_fall_though_its_process_was_killed(
    tag: TagUnderTest,
) -> None:
    await tag.open()
    await tag.baseline(1.001, 0.9995)
    await tag.trained(0.9960)
    claim = await tag.tried(0.9970)
    await tag.judge(claim["experiment_id"])
    await tag.measured("mar11-2.2", 1.003)
    assert await tag.standing("mar11-2") == ("discard", "demoted")
    assert await retests_of(tag, claim["experiment_id"]) == []

    await judge_heard(tag, "experiment.demoted")

    assert await retests_of(tag, claim["experiment_id"])


async def test_claims_are_looked_at_when_a_keep_is_confirmed_at_a_worse_value(tag: TagUnderTest) -> None:
    await tag.open()
    for nth in range(8):
        await add_gpu(tag.client, f"x:gpu{nth}")
    await tag.baseline(10.02, 9.98, first=10.0)
    await tag.trained(9.7)
    for nth in range(4, 9):
        await tag.told("/api/experiment/retest", experiment_id="mar11-1")
        await tag.measured(f"mar11-1.{nth}", 10.0)
    claim = await tag.tried(9.75)
    await tag.judge(claim["experiment_id"])
    assert await retests_of(tag, claim["experiment_id"]) == []

    await tag.measured("mar11-2.2", 9.85)
    await judge_heard(tag, "experiment.confirmed")

    assert await tag.standing("mar11-2") == ("keep", "confirmed")
    assert await retests_of(tag, claim["experiment_id"])


async def test_a_spent_budget_keeps_no_keep_that_its_runs_refute(tag: TagUnderTest) -> None:
    """The run that the baseline owes cannot begin; the keep's own has ended."""
    await tag.open(baseline_repeats=2)
    await tag.told("/api/tag/budget", tag="mar11", runs=5)
    await tag.trained(1.0, commit_sha="abc1234")
    await tag.measured("mar11-1.2", 1.001)
    await tag.broken("mar11-1.3", "infra")
    await tag.told("/api/experiment/stop", experiment_id="mar11-1.4")
    await tag.trained(0.999)

    await tag.measured("mar11-2.2", 1.5)

    assert await tag.standing("mar11-2") == ("discard", "demoted")


async def test_retests_of_a_retracted_keep_are_stopped_though_the_process_was_killed(
    tag: TagUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tag.open()
    await tag.baseline(1.001, 0.9995)
    await tag.trained(0.9994)

    async def killed(*_: object) -> None:
        raise SystemError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(functions.trust.retests, "stop_retests", killed)
        asks = {"experiment_id": "mar11-2", "reason": "wrong"}
        died = await tag.client.post("/api/experiment/retract", json=asks)
    assert died.status_code == 500

    await tag.judge("mar11-2")

    assert [retest["status"] for retest in await retests_of(tag, "mar11-2")] == ["stopped"]


async def test_a_provisional_gain_is_not_the_largest(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.baseline(10.001, 10.002, first=10.0)
    for nth in range(10):
        await tag.trained(9.9 - nth / 10)
    assert (await tag.trained(5.0))["trust"] == "provisional"
    largest = await largest_gain(tag)
    history = (await tag.told("/api/experiment/history", tag="mar11", limit=50))["experiments"]
    made = next(e["experiment_id"] for e in history if repr(e["delta"]) == largest)

    await tag.told("/api/experiment/retract", experiment_id=made, reason="wrong")

    assert 0 < float(await largest_gain(tag) or 0) < 1


async def test_the_largest_gain_is_that_of_the_tags_main_conditions(tag: TagUnderTest) -> None:
    await tag.open(keep_rule="strict")
    for gpu_class, values in (("H100", (1.0, 0.75)), ("A100", (2.0, 1.75))):
        for value in values:
            await tag.tried(value, result={"gpu_class": gpu_class})
    assert await largest_gain(tag) == "0.25"

    await tag.told("/api/experiment/retract", experiment_id="mar11-4", reason="wrong")

    assert await largest_gain(tag) == "0.25"
