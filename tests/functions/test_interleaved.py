"""What ends, rises or falls between a decision's reads and its move, and what a process that is killed leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest

import functions.experiment.retract
from functions.contract import On
from functions.process.lifecycle import Process
from functions.table import table
from state.client import Lab
from state.codes import code_of
from state.experiments import Experiments
from state.noise import noise_key, runs_at
from tests.functions.test_confirmed import (
    baseline,
    best_of,
    broken,
    faults,
    free,
    judge_retests,
    measured,
    opened,
    report,
    selected,
    standing,
    trained,
)
from tests.labs import add_gpu, asked, begun, events_of, idea, told, tried


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


async def retests_of(client: httpx.AsyncClient, name: str) -> list[dict[str, Any]]:
    return list((await asked(client, f"/api/experiment/{name}"))["retests"])


async def largest_gain(process: Process) -> str | None:
    return (await process.lab.hash(process.lab.keys.tag("mar11"))).get("largest_gain")


async def judge_heard(client: httpx.AsyncClient, process: Process, kind: str) -> None:
    """Judge as the events of this type have it done."""
    bound = [t for t in table()["experiment::judge_retests"].triggers if isinstance(t, On)]
    assert any(kind in trigger.events for trigger in bound)
    for event in await events_of(process, kind):
        await judge_retests(client, event["subject"])


@pytest.mark.parametrize("method", ["run_facts", "comparison"])
async def test_a_claim_that_two_processes_measure_at_once_counts_once(
    client: httpx.AsyncClient, process: Process, before: Callable[..., None], method: str
) -> None:
    await opened(client, keep_rule="strict")
    await trained(client, process, 1.0)
    claim = await tried(client, 0.5)
    await judge_retests(client, claim["experiment_id"])
    await measured(client, process, "mar11-2.2", 1.5, unjudged=True)
    before(method, lambda: judge_retests(client, "mar11-2.2"))

    await judge_retests(client, "mar11-2.2")

    assert (await standing(client, "mar11-2"))[0] == "discard"
    assert await faults(client) == []


async def branch_keep_to_rise(client: httpx.AsyncClient, process: Process) -> None:
    """The keep of a branch, mar11-3, is the best as soon as its retest is judged."""
    await opened(client, traces={"mode": "multi", "target_traces": 2, "max_parallel": 4})
    first = await selected(client)
    await trained(client, process, 1.0, commit_sha="abc1234", selection_id=first["selection_id"])
    for nth, value in ((2, 1.001), (3, 0.9995)):
        await measured(client, process, f"mar11-1.{nth}", value)
    another = await selected(client, intent="extend")
    await trained(client, process, 0.9960, selection_id=another["selection_id"])
    await trained(client, process, 0.9970, selection_id=(await selected(client))["selection_id"])
    await measured(client, process, "mar11-2.2", 1.003)
    await measured(client, process, "mar11-3.2", 0.9975, unjudged=True)


async def test_a_keep_that_rises_while_it_is_taken_back_leaves_every_index(
    client: httpx.AsyncClient, process: Process, before: Callable[..., None]
) -> None:
    """A branch's keep becomes the best between the retraction's reads."""
    await branch_keep_to_rise(client, process)
    before("retraction_facts", lambda: judge_retests(client, "mar11-3.2"))

    await told(client, "/api/experiment/retract", experiment_id="mar11-3", reason="wrong")

    assert await best_of(client) == "mar11-1"
    assert await faults(client) == []


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


@pytest.mark.parametrize("nth", range(5))
async def test_a_keep_that_rises_between_two_of_a_retraction_s_reads_leaves_every_index(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    await branch_keep_to_rise(client, process)
    steps = list[str]()

    async def rise() -> None:
        steps.extend(await judge_retests(client, "mar11-3.2"))

    between_reads(monkeypatch, "mar11-3", nth, rise)
    await told(client, "/api/experiment/retract", experiment_id="mar11-3", reason="wrong")

    assert "promote mar11-3" in steps
    assert await best_of(client) == "mar11-1"
    assert await faults(client) == []


@pytest.mark.parametrize("nth", range(5, 10))
async def test_a_retest_that_ends_between_two_of_a_retraction_s_reads_leaves_the_noise_with_it(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    await opened(client)
    await baseline(client, process, 1.001, 0.9995)
    await trained(client, process, 0.9994)
    await told(client, "/api/pool/dispatch")
    again = await begun(process, "mar11-2.2")
    ended = list[dict[str, Any]]()

    async def end() -> None:
        ended.append(await report(client, again, 0.9996))

    between_reads(monkeypatch, "mar11-2", nth, end)
    await told(client, "/api/experiment/retract", experiment_id="mar11-2", reason="wrong")

    e = await Experiments(process.lab).get("mar11-2")
    noise, code = noise_key(process.lab.keys, "mar11", e.gpu_class), code_of(e, None)
    assert ended[0]["status"] == "measured"
    assert await process.lab.command("ZRANGE", runs_at(noise, code), 0, -1) == []
    assert await process.lab.command("HGET", noise, code) is None


async def test_a_result_that_ends_while_the_best_is_worth_less_is_its_rival(
    client: httpx.AsyncClient, process: Process, before: Callable[..., None]
) -> None:
    await opened(client)
    await trained(client, process, 0.0001, commit_sha="abc1234")
    await measured(client, process, "mar11-1.2", 0.95)
    await told(client, "/api/experiment/submit", **idea())
    await told(client, "/api/pool/dispatch")
    again = await begun(process, "mar11-1.3")
    await report(client, again, 0.951)
    await free(process, again)
    await told(client, "/api/pool/dispatch")
    rival = await begun(process, "mar11-2")
    before("judge", lambda: report(client, rival, 0.9))

    await judge_retests(client, "mar11-1.3")
    await free(process, rival)
    await judge_retests(client, "mar11-2")

    assert await retests_of(client, "mar11-2")
    assert await faults(client) == []


async def test_claims_are_looked_at_by_the_event_of_a_keep_s_fall_though_its_process_was_killed(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await baseline(client, process, 1.001, 0.9995)
    await trained(client, process, 0.9960)
    claim = await tried(client, 0.9970)
    await judge_retests(client, claim["experiment_id"])
    await measured(client, process, "mar11-2.2", 1.003)
    assert await standing(client, "mar11-2") == ("discard", "demoted")
    assert await retests_of(client, claim["experiment_id"]) == []

    await judge_heard(client, process, "experiment.demoted")

    assert await retests_of(client, claim["experiment_id"])


async def test_claims_are_looked_at_by_the_event_of_the_best_s_other_value(
    client: httpx.AsyncClient, process: Process
) -> None:
    """Another experiment of its code contradicts the best: none of its own retests ends."""
    await opened(client, baseline_repeats=0, max_retests=0)
    for value in (1.5, 1.501, 1.502, 1.5):
        await trained(client, process, value, commit_sha="bbbbbbb")
    await trained(client, process, 1.0, commit_sha="aaaaaaa")
    claim = await tried(client, 1.1)
    await judge_retests(client, claim["experiment_id"])
    assert await retests_of(client, claim["experiment_id"]) == []

    await trained(client, process, 1.3, commit_sha="aaaaaaa")
    await judge_heard(client, process, "experiment.revalued")

    best = (await told(client, "/api/experiment/best", tag="mar11"))["best"]
    assert (best["experiment_id"], best["val_bpb"]) == ("mar11-5", 1.3)
    [event] = await events_of(process, "experiment.revalued")
    assert (event["val_bpb"], event["judged_val_bpb"], event["best_val_bpb"]) == (1.0, 1.3, 1.3)
    assert await retests_of(client, claim["experiment_id"])
    assert await faults(client) == []


async def test_claims_are_looked_at_when_a_keep_is_confirmed_at_a_worse_value(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    for nth in range(8):
        await add_gpu(client, f"x:gpu{nth}")
    await baseline(client, process, 10.02, 9.98, first=10.0)
    await trained(client, process, 9.7)
    for nth in range(4, 9):
        await told(client, "/api/experiment/retest", experiment_id="mar11-1")
        await measured(client, process, f"mar11-1.{nth}", 10.0)
    claim = await tried(client, 9.75)
    await judge_retests(client, claim["experiment_id"])
    assert await retests_of(client, claim["experiment_id"]) == []

    await measured(client, process, "mar11-2.2", 9.85)
    await judge_heard(client, process, "experiment.confirmed")

    assert await standing(client, "mar11-2") == ("keep", "confirmed")
    assert await retests_of(client, claim["experiment_id"])


async def test_a_spent_budget_keeps_no_keep_that_its_runs_refute(
    client: httpx.AsyncClient, process: Process
) -> None:
    """The run that the baseline owes cannot begin; the keep's own has ended."""
    await opened(client, baseline_repeats=2)
    await told(client, "/api/tag/budget", tag="mar11", runs=5)
    await trained(client, process, 1.0, commit_sha="abc1234")
    await measured(client, process, "mar11-1.2", 1.001)
    await broken(client, process, "mar11-1.3", "infra")
    await told(client, "/api/experiment/stop", experiment_id="mar11-1.4")
    await trained(client, process, 0.999)

    await measured(client, process, "mar11-2.2", 1.5)

    assert await standing(client, "mar11-2") == ("discard", "demoted")
    assert await faults(client) == []


async def test_retests_of_a_retracted_keep_are_stopped_though_the_process_was_killed(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(client)
    await baseline(client, process, 1.001, 0.9995)
    await trained(client, process, 0.9994)

    async def killed(*_: object) -> None:
        raise SystemError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(functions.experiment.retract, "stop_retests", killed)
        asks = {"experiment_id": "mar11-2", "reason": "wrong"}
        died = await client.post("/api/experiment/retract", json=asks)
    assert died.status_code == 500

    await judge_retests(client, "mar11-2")

    assert [retest["status"] for retest in await retests_of(client, "mar11-2")] == ["stopped"]


async def test_a_later_run_of_retracted_code_is_no_repeat_any_more(
    client: httpx.AsyncClient, process: Process
) -> None:
    """The retracted keep was not the best: another one stood on it."""
    await opened(client, baseline_repeats=0)
    for nth in range(8):
        await add_gpu(client, f"x:gpu{nth}")
    await trained(client, process, 1.0, commit_sha="abc1234")
    await trained(client, process, 0.9990, commit_sha="bbbbbbb")
    await trained(client, process, 0.9988, commit_sha="ccccccc")
    again = await trained(client, process, 0.9989, commit_sha="bbbbbbb")
    assert again["repeats_best"]

    await told(client, "/api/experiment/retract", experiment_id="mar11-2", reason="wrong")

    found = (await asked(client, "/api/experiment/mar11-4"))["experiment"]
    near = (await told(client, "/api/experiment/near-misses", tag="mar11"))["near_misses"]
    assert (found["repeats_best"], found["reason"]) == (False, None)
    assert [each["experiment_id"] for each in near] == ["mar11-4"]


async def test_a_gain_that_was_contradicted_is_not_the_largest_again(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client)
    await baseline(client, process, 10.001, 10.002, first=10.0)
    for value in (9.9, 0.0001):
        await trained(client, process, value)
    await told(client, "/api/experiment/retest", experiment_id="mar11-3")
    await measured(client, process, "mar11-3.2", 9.8)
    assert await largest_gain(process) == repr(10.0 - 9.9)

    await told(client, "/api/experiment/retract", experiment_id="mar11-2", reason="wrong")

    assert await largest_gain(process) == ""


async def test_a_provisional_gain_is_not_the_largest(client: httpx.AsyncClient, process: Process) -> None:
    await opened(client)
    await baseline(client, process, 10.001, 10.002, first=10.0)
    for nth in range(10):
        await trained(client, process, 9.9 - nth / 10)
    assert (await trained(client, process, 5.0))["trust"] == "provisional"
    largest = await largest_gain(process)
    history = (await told(client, "/api/experiment/history", tag="mar11", limit=50))["experiments"]
    made = next(e["experiment_id"] for e in history if repr(e["delta"]) == largest)

    await told(client, "/api/experiment/retract", experiment_id=made, reason="wrong")

    assert 0 < float(await largest_gain(process) or 0) < 1


async def test_the_largest_gain_is_that_of_the_tags_main_conditions(
    client: httpx.AsyncClient, process: Process
) -> None:
    await opened(client, keep_rule="strict")
    for gpu_class, values in (("H100", (1.0, 0.75)), ("A100", (2.0, 1.75))):
        for value in values:
            await tried(client, value, result={"gpu_class": gpu_class})
    assert await largest_gain(process) == "0.25"

    await told(client, "/api/experiment/retract", experiment_id="mar11-4", reason="wrong")

    assert await largest_gain(process) == "0.25"
