"""Budgets: reservations before a run is queued, what is spent, and exact books."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from state.records import Experiment
from tests.functions.conftest import TagUnderTest
from tests.labs import add_gpu, curl, dump, idea, open_tag, problem, registered, running

BASE_S = 300.0
SUBMIT = "/api/experiment/submit"


@pytest.fixture
async def tag(tag: TagUnderTest) -> TagUnderTest:
    await open_tag(tag.client)
    return tag


async def limited(tag: TagUnderTest, **limits: Any) -> dict[str, Any]:
    return await tag.told("/api/tag/budget", tag="mar11", **limits)


async def submit(tag: TagUnderTest, **more: Any) -> str:
    return str((await tag.told(SUBMIT, **idea(**more)))["experiment_id"])


async def books(tag: TagUnderTest) -> list[float]:
    """Reserved seconds and runs, spent seconds and runs; the audit agrees with them."""
    assert (await tag.told("/api/lab/audit"))["violations"] == []
    answer = await limited(tag)
    seconds, runs = answer["gpu_seconds"], answer["runs"]
    return [seconds["reserved"], runs["reserved"], seconds["spent"], runs["spent"]]


async def ran_for(tag: TagUnderTest, e: Experiment, seconds: float) -> None:
    """As if the attempt had begun so long ago."""
    key = tag.lab.keys.attempts(e.experiment_id)
    begin = repr(await tag.lab.now() - seconds)
    await tag.lab.command("HSET", key, f"{e.attempt}:started_at", begin)


def of(e: Experiment) -> dict[str, Any]:
    return {"experiment_id": e.experiment_id, "attempt": e.attempt, "fence": e.fence}


def about(seconds: float) -> Any:
    """A time that was measured a moment later: at least so long, and no minute longer."""
    return pytest.approx(seconds + 30, abs=30)


async def test_fifty_who_submit_at_once_get_exactly_the_runs_that_there_are(tag: TagUnderTest) -> None:
    await limited(tag, runs=10)

    answers = await asyncio.gather(*(curl(tag.client, SUBMIT, idea()) for _ in range(50)))

    assert Counter(a.status_code for a in answers) == {200: 10, 409: 40}
    page = await tag.told("/api/experiment/history", tag="mar11", limit=100)
    assert [e["status"] for e in page["experiments"]] == ["queued"] * 10
    assert await books(tag) == [10 * BASE_S, 10, 0, 0]
    document = next(problem(a) for a in answers if a.status_code == 409)
    said: dict[str, Any] = {
        "code": "budget_exhausted",
        "title": "Budget exhausted",
        "resource": "runs",
        "limit": 10,
    }
    said |= {"reserved": 10, "spent": 0}
    assert {name: document[name] for name in said} == said


@pytest.mark.parametrize("attempts", [1, 3])
async def test_the_time_in_which_a_lab_was_off_is_not_spent(tag: TagUnderTest, attempts: int) -> None:
    """A run goes on for 100 s, then the machine is off for ten hours."""
    keys, off_s, ran_s = tag.lab.keys, 36_000.0, 100.0
    await limited(tag, gpu_seconds=20_000)
    await add_gpu(tag.client)
    e = await running(tag.client, tag.process)
    await tag.lab.command("HSET", keys.experiment(e.experiment_id), "attempt", attempts)
    await tag.lab.command("HSET", keys.attempts(e.experiment_id), f"{attempts}:status", "running")
    await ran_for(tag, e.model_copy(update={"attempt": attempts}), off_s + ran_s)
    ended = f"{await tag.lab.now() - off_s:.6f}"
    await tag.lab.command("HSET", keys.gpu("host:gpu0"), "heartbeat_at", ended, "lease_expires_at", ended)
    await tag.lab.command("ZADD", keys("leases"), ended, "host:gpu0")

    await tag.told("/api/pool/sweep")

    assert (await limited(tag))["gpu_seconds"]["spent"] == pytest.approx(ran_s, abs=30)


@pytest.mark.parametrize("limits", [{"runs": 1}, {"gpu_seconds": 1.5 * BASE_S}])
async def test_what_is_refused_changes_nothing(tag: TagUnderTest, limits: dict[str, Any]) -> None:
    await limited(tag, **limits)
    await submit(tag)
    waiting = await registered(tag.client)
    before = await dump(tag.lab)

    submitted = await tag.refused(409, SUBMIT, **idea())
    queued = await tag.refused(409, "/api/gpu/train", experiment_id=waiting)

    assert "/api/tag/budget" in submitted["hint"]
    assert submitted["code"] == queued["code"] == "budget_exhausted"
    assert await dump(tag.lab) == before


ENDS = {
    "a result that is repeated": (2, ["complete"] * 10),
    "lost for the last time": (1, ["give-back"]),
    "stopped, then lost": (2, ["stop", "give-back"]),
    "lost, then stopped": (2, ["give-back", "stop"]),
}
"""Attempts that a run may have, and what ends the first."""


@pytest.mark.parametrize(("attempts", "calls"), ENDS.values(), ids=ENDS)
async def test_a_run_is_spent_once_by_the_labs_clock_however_it_ends(
    tag: TagUnderTest, attempts: int, calls: list[str]
) -> None:
    await tag.told("/api/search/set-policy", tag="mar11", policy={"max_attempts": attempts})
    await add_gpu(tag.client)
    e = await running(tag.client, tag.process)
    await ran_for(tag, e, 100)
    bodies: dict[str, dict[str, Any]] = {
        "/api/experiment/complete": {**of(e), "val_bpb": 1.0, "training_seconds": 7},
        "/api/experiment/stop": {"experiment_id": e.experiment_id},
        "/api/pool/give-back": {"gpu_id": e.gpu_id, "fence": e.fence, "reason": "killed"},
    }

    for call in calls:
        path = next(path for path in bodies if path.endswith(call))
        await tag.told(path, **bodies[path])

    assert await books(tag) == [0, 0, about(100), 1]


async def test_a_lost_attempt_is_spent_and_its_retry_reserves_no_more_than_it_did(tag: TagUnderTest) -> None:
    await limited(tag, runs=1, gpu_seconds=1000)
    await add_gpu(tag.client)
    e = await running(tag.client, tag.process)
    await began_ago(tag, e, BASE_S + 100)
    await polled(tag, e)

    await tag.told("/api/pool/give-back", gpu_id=e.gpu_id, fence=e.fence, reason="killed")
    waiting = await books(tag)
    again = await tag.begun(e.experiment_id)
    await ran_for(tag, again, 200)
    await tag.told("/api/experiment/crash", **of(again), error="boom")

    assert waiting == [BASE_S, 1, about(BASE_S + 100), 0]
    assert again.attempt == 2
    assert await books(tag) == [0, 0, about(BASE_S + 300), 1]


async def test_what_agents_train_themselves_counts_and_is_never_refused(tag: TagUnderTest) -> None:
    await limited(tag, gpu_seconds=100, runs=1)

    await tag.tried(1.0, result={"training_seconds": 90.0})
    await tag.tried(0.9, result={"training_seconds": 60.5})
    name = await registered(tag.client)
    await tag.told("/api/experiment/crash", experiment_id=name, error="boom", training_seconds=1.0)
    await tag.tried(0.8)

    assert await books(tag) == [0, 0, 151.5, 4]
    answer = await limited(tag)
    assert (answer["gpu_seconds"]["left"], answer["runs"]["left"]) == (-51.5, -3)
    await tag.refused(409, SUBMIT, **idea())


WEEK_S = 7 * 86400.0


async def polled(tag: TagUnderTest, e: Experiment) -> str:
    """What the worker that looks after a run is told."""
    experiments = tag.experiments
    return await experiments.renew(e.experiment_id, e.gpu_id or "", e.fence, 60.0)


async def began_ago(tag: TagUnderTest, e: Experiment, seconds: float) -> None:
    """As if the run had begun so long ago."""
    await ran_for(tag, e, seconds)
    key = tag.lab.keys.experiment(e.experiment_id)
    await tag.lab.command("HSET", key, "started_at", repr(await tag.lab.now() - seconds))


@pytest.mark.parametrize("field", ["timeout_s", "budget_s"])
async def test_more_seconds_than_the_policy_allows_are_refused_and_the_most_is_named(
    tag: TagUnderTest, field: str
) -> None:
    await limited(tag, gpu_seconds=20)
    await tag.told("/api/search/set-policy", tag="mar11", policy={"budgets.base_s": 5})
    doors: list[tuple[str, dict[str, Any]]] = [
        ("/api/gpu/train", {"experiment_id": await registered(tag.client)}),
        *([(SUBMIT, idea())] if field == "timeout_s" else []),
    ]
    before = await dump(tag.lab)

    for path, body in doors:
        document = await tag.refused(422, path, **body, **{field: WEEK_S})
        assert (document["code"], document["largest"]) == ("too_long", 70)
        assert field in document["detail"]

    assert await dump(tag.lab) == before
    for path, body in doors:
        await tag.told(path, **body, **{field: 10.0})


async def test_an_answer_says_after_how_many_seconds_the_budget_ends_the_run(tag: TagUnderTest) -> None:
    without = await tag.told(SUBMIT, **idea())
    await limited(tag, gpu_seconds=BASE_S + 400)
    body = idea()

    submitted = await curl(tag.client, SUBMIT, body, idempotency_key="k")
    again = await curl(tag.client, SUBMIT, body, idempotency_key="k")
    train = await tag.told("/api/gpu/train", experiment_id=submitted.json()["experiment_id"])

    assert without["timeout_s"] == 660
    assert [a["timeout_s"] for a in (submitted.json(), again.json(), train)] == [400, 400, 400]


async def test_a_run_that_outlasts_its_share_takes_what_is_left_of_the_budget(tag: TagUnderTest) -> None:
    await limited(tag, gpu_seconds=2 * BASE_S + 200)
    await add_gpu(tag.client)
    e = await running(tag.client, tag.process)
    await submit(tag)

    in_time = await polled(tag, e)
    await began_ago(tag, e, BASE_S + 100)
    outlasted = await polled(tag, e)
    grown = await books(tag)
    await began_ago(tag, e, BASE_S + 300)
    reached = [await polled(tag, e) for _ in range(2)]

    assert (in_time, outlasted, reached) == ("continue", "continue", ["stop", "stop"])
    assert grown == [about(2 * BASE_S + 100), 2, 0, 0]
    found = await tag.experiment(e.experiment_id)
    assert (found["stopping"], found["stop_reason"]) == (True, "its tag's budget of GPU seconds is used up")


async def test_no_gpu_of_the_lab_is_lent_to_a_tag_whose_seconds_are_used_up(tag: TagUnderTest) -> None:
    await add_gpu(tag.client)
    first, second = await registered(tag.client), await registered(tag.client)
    await tag.told("/api/experiment/complete", experiment_id=first, val_bpb=1.0, training_seconds=20)
    await limited(tag, gpu_seconds=20)

    refusal = await tag.told("/api/pool/acquire", experiment_id=second)
    await limited(tag, gpu_seconds=21)
    lease = await tag.told("/api/pool/acquire", experiment_id=second)

    assert (refusal["acquired"], "no GPU seconds left" in refusal["reason"]) == (False, True)
    assert lease["acquired"]


async def test_a_claim_s_own_number_of_seconds_does_not_take_a_gpu_for_a_week(tag: TagUnderTest) -> None:
    name = (await tag.tried(1.0, result={"budget_seconds": WEEK_S}))["experiment_id"]
    again = await tag.told("/api/experiment/retest", experiment_id=name)
    e = await tag.experiments.get(again["retest_id"])
    assert (e.budget_s, e.timeout_s) == (660, 1380)


async def test_absent_leaves_a_limit_and_null_takes_it_away_and_what_is_left_is_shown(
    tag: TagUnderTest,
) -> None:
    without = await tag.told("/api/report/brief", tag="mar11")
    changes: list[dict[str, Any]] = [{"gpu_seconds": BASE_S, "runs": 10}, {"runs": None}, {}]
    answers = [await limited(tag, **change) for change in changes]
    await submit(tag)
    summary, brief = await tag.summary(), await tag.told("/api/report/brief", tag="mar11")

    assert [a["changed"] for a in answers] == [True, True, False]
    assert (answers[-1]["gpu_seconds"]["limit"], answers[-1]["runs"]["limit"]) == (BASE_S, None)
    assert without["budget"] is None
    assert summary["budget"] == brief["budget"]
    assert brief["budget"]["runs"] == {"limit": None, "spent": 0, "reserved": 1, "left": None}
    assert "no GPU seconds left" in summary["hint"]
    assert "/api/tag/budget" in summary["hint"]


async def test_eighty_percent_are_told_once_for_every_limit(tag: TagUnderTest) -> None:
    async def warnings() -> list[tuple[str, float, float, float]]:
        found = await tag.events("tag.budget_warning")
        return [(e["resource"], e["limit"], e["spent"], e["reserved"]) for e in found]

    await limited(tag, runs=10, gpu_seconds=1_000_000)
    for _ in range(7):
        await submit(tag)
    below = await warnings()
    for _ in range(3):
        await submit(tag)
    await tag.told("/api/experiment/stop", experiment_id="mar11-1")
    await submit(tag)
    at_ten = await warnings()
    await limited(tag, runs=10)
    await limited(tag, runs=12)

    assert below == []
    assert at_ten == [("runs", 10, 0, 8)]
    assert (await warnings())[1:] == [("runs", 12, 0, 10)]


NO_LIMITS: list[tuple[str, Any]] = [("runs", value) for value in (-1, 1.5, "10", True, 10**13)]
NO_LIMITS += [("gpu_seconds", value) for value in (-0.1, 1e300, "1h", [1])] + [("gpu_minutes", 1)]
NO_PAUSES = [("reason", ""), ("reason", "x" * 501), ("stop_running", "yes"), ("until", 1), ("reason", 1)]


async def test_a_limit_or_a_pause_that_is_none_is_refused(tag: TagUnderTest) -> None:
    before = await dump(tag.lab)

    for verb, fields in (("budget", NO_LIMITS), ("pause", NO_PAUSES)):
        for field, value in fields:
            document = await tag.refused(422, f"/api/tag/{verb}", tag="mar11", **{field: value})

            assert field in document["detail"]
    assert await dump(tag.lab) == before


async def test_the_books_are_right_whatever_happens_at_once(tag: TagUnderTest) -> None:
    chance = random.Random(7)
    await tag.told("/api/search/set-policy", tag="mar11", policy={"max_attempts": 2})
    await limited(tag, runs=25)
    for n in range(4):
        await add_gpu(tag.client, f"g{n}")
    queued = 0

    async def submits() -> None:
        nonlocal queued
        response = await curl(tag.client, SUBMIT, idea())
        queued += response.status_code == 200

    async def dispatches() -> None:
        for name in (await tag.told("/api/pool/dispatch"))["leased"]:
            e = await tag.experiments.get(name)
            lease: dict[str, Any] = {"attempt": e.attempt, "fence": e.fence, "lease_s": 60}
            if await tag.experiments.start(e, runner="host:1:1", **lease):
                await ran_for(tag, e, chance.random() * 100)

    async def ends() -> None:
        gpus = (await tag.asked("/api/pool/list"))["workers"]
        held = [g for g in gpus if g["experiment_id"]]
        if not held:
            return
        gpu = chance.choice(held)
        e = await tag.experiments.get(gpu["experiment_id"])
        ways: list[tuple[str, dict[str, Any]]] = [
            ("/api/experiment/complete", {**of(e), "val_bpb": 1.0}),
            ("/api/experiment/crash", {**of(e), "error": "boom"}),
            ("/api/pool/give-back", {"gpu_id": gpu["gpu_id"], "fence": e.fence, "reason": "killed"}),
            ("/api/pool/release", {"gpu_id": gpu["gpu_id"]}),
        ]
        await curl(tag.client, *chance.choice(ways))  # it may be over by now: a conflict is an answer too

    async def stops() -> None:
        page = await tag.told("/api/experiment/history", tag="mar11", status="queued")
        if page["experiments"]:
            name = chance.choice(page["experiments"])["id"]
            await curl(tag.client, "/api/experiment/stop", {"experiment_id": name})

    async def pauses() -> None:
        await tag.told(f"/api/tag/{chance.choice(['pause', 'unpause'])}", tag="mar11")

    acts = [submits] * 6 + [dispatches] * 2 + [ends] * 4 + [stops, pauses]
    for _ in range(12):
        await asyncio.gather(*(chance.choice(acts)() for _ in range(12)))

    reserved_s, reserved, spent_s, spent = await books(tag)
    assert reserved + spent <= 25
    assert queued > 0
    assert reserved_s == reserved * BASE_S
    assert spent_s >= 0
    assert spent == len(await ended_runs(tag))


async def ended_runs(tag: TagUnderTest) -> list[str]:
    """Experiments that are over and had a worker."""
    page = await tag.told("/api/experiment/history", tag="mar11", limit=1000)
    over = [e["id"] for e in page["experiments"] if e["finished_at"] is not None]
    attempts = await tag.experiments.attempts_of(over)
    return [i for i, its in zip(over, attempts, strict=True) if any("started_at" in a for a in its.values())]
