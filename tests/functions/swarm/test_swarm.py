"""A swarm over HTTP: who joins, what is handed out, what a tick is told, what a result counts for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from redis import Redis

from functions.fold import CONTRADICTED
from functions.kernel.process.lifecycle import Process, opened
from functions.people.plot import Point
from functions.runs.rules.stopping import REASON
from functions.swarm import configs
from functions.swarm.rules.handing_out import MOST_ACTIVE
from state import swarms
from state.experiments import Experiments
from state.records import Experiment
from state.settings import Settings
from state.swarms import Swarms
from state.tokens import TRIES_S, WRONG_TRIES
from tests.conftest import http_client
from tests.labs import (
    asked,
    bearer,
    curl,
    dump,
    events_of,
    for_a_while,
    idea,
    open_tag,
    problem,
    refused,
    registered,
    told,
    tried,
)

DIMENSIONS: list[dict[str, Any]] = [
    {"name": "LR", "dtype": "float_log", "min": 1e-4, "max": 1e-1},
    {"name": "DEPTH", "dtype": "int", "min": 1, "max": 8},
    {"name": "OPTIMIZER", "dtype": "categorical", "categories": ["adam", "sgd"]},
]
BASELINE = 1.0
JOINING: dict[str, Any] = {"worker_id": "w1", "gpu_type": "H100", "baseline_bpb": BASELINE}


@dataclass
class Swarm:
    """A tag's swarm, by the client of an open lab's own machine."""

    http: httpx.AsyncClient
    process: Process
    workers: set[str] = field(default_factory=set)

    async def join(self, worker_id: str, **more: Any) -> str:
        """The token of a new worker."""
        self.workers.add(worker_id)
        body = JOINING | {"worker_id": worker_id} | more
        return str((await told(self.http, "/register", **body))["worker_token"])

    async def next(self, worker_id: str) -> dict[str, Any]:
        """What the worker is handed out; it joins first if it has not yet."""
        if worker_id not in self.workers:
            await self.join(worker_id)
        return await asked(self.http, f"/next_config/{worker_id}")

    async def result(self, worker_id: str, run_id: str, value: float | None, **more: Any) -> dict[str, Any]:
        return await told(self.http, "/result", **sent(worker_id, run_id, value, **more))

    async def run(self, worker_id: str, value: float, **more: Any) -> str:
        """The id of a run that was handed out and has this value."""
        run_id = (await self.next(worker_id))["run_id"]
        await self.result(worker_id, run_id, value, **more)
        return str(run_id)

    async def run_of(self, worker_id: str, value: float, **config: Any) -> str:
        """The id of a run of this config that the worker chose itself, and that has this value."""
        if worker_id not in self.workers:
            await self.join(worker_id)
        run_id = (await told(self.http, f"/runs/start/{worker_id}", **config))["run_id"]
        await self.result(worker_id, run_id, value)
        return str(run_id)

    async def tick(self, run_id: str, progress: float, metric: float) -> dict[str, Any]:
        return await told(self.http, "/tick", id=run_id, p=progress, m=metric, d=metric - BASELINE)

    async def record(self, run_id: str) -> Experiment:
        return await Experiments(self.process.lab).get(run_id)

    async def silence(self, run_id: str) -> None:
        """Let the run's worker be silent for too long."""
        await self.process.lab.command("ZADD", self.process.lab.keys("handed_out"), "1", run_id)

    async def swept(self) -> list[str]:
        """The runs that a sweep finds lost."""
        return list((await told(self.http, "/api/swarm/sweep"))["lost"])

    async def policy(self, **values: Any) -> None:
        await told(self.http, "/api/search/set-policy", tag="swarm", policy=values)

    async def audited(self) -> list[str]:
        return list((await told(self.http, "/api/lab/audit"))["violations"])


def sent(worker_id: str, run_id: str, value: float | None, **more: Any) -> dict[str, Any]:
    delta = None if value is None else value - BASELINE
    plain = {"worker_id": worker_id, "exp_id": run_id, "val_bpb": value, "delta_bpb": delta}
    return plain | {"config": {}, "config_delta": {}, "duration_seconds": 2.5} | more


async def test_the_first_worker_opens_a_profile_s_swarm(client: httpx.AsyncClient, process: Process) -> None:
    welcome = await told(
        client, "/register", worker_id="w1", gpu_type="H100", baseline_bpb=1.0, contact="ann"
    )

    assert welcome["message"] == "Welcome w1! You are worker #1."
    assert (welcome["ok"], welcome["current_program_md"]) == (True, "")
    names = {d["name"] for d in (await told(client, "/api/dimension/list", tag="swarm"))["dimensions"]}
    assert {"LR", "BATCH_SIZE", "OPTIMIZER"} <= names
    [event] = await events_of(process, "worker.joined")
    assert (event["worker_id"], event["gpu_type"]) == ("w1", "H100")
    assert "ann" not in json.dumps(event)


async def test_a_worker_that_joins_again_stays_the_same_with_another_baseline_and_token(swarm: Swarm) -> None:
    first = await swarm.join("w1")
    again = await told(swarm.http, "/register", worker_id="w1", gpu_type="A100", baseline_bpb=2.0)
    run = await swarm.record((await swarm.next("w1"))["run_id"])
    assert again["message"] == "Welcome w1! You are worker #1."
    assert again["worker_token"] != first
    assert (run.gpu_type, run.baseline_bpb) == ("A100", 2.0)


async def test_what_no_worker_may_say_is_refused_and_its_run_goes_on(swarm: Swarm) -> None:
    await told(swarm.http, "/api/experiment/setup", tag="mar11")  # it has nothing to vary
    await swarm.join("w2")
    run_id = (await swarm.next("w1"))["run_id"]
    joining, tick = JOINING | {"worker_id": "w3"}, {"id": run_id, "p": 0.2, "m": 1.0}
    wrong: list[tuple[int, str, dict[str, Any]]] = [
        *((422, "/register", joining | {"baseline_bpb": baseline}) for baseline in (0.0, 1e300)),
        (422, "/register", joining | {"worker_id": "no spaces"}),
        *((status, "/register", joining | {"tag": tag}) for status, tag in ((422, "a b"), (409, "mar11"))),
        (404, "/register", joining | {"tag": "nowhere"}),
        *(
            (422, "/tick", tick | bad)
            for bad in ({"p": -0.1}, {"p": 1.6}, {"p": "0.2"}, {"m": None}, {"x": 1})
        ),
        *((status, "/tick", tick | {"id": name}) for status, name in ((422, "no run"), (404, "swarm-99"))),
        *((422, "/result", sent("w1", run_id, value)) for value in (None, 0.0, -1.0, 1e300)),
        (403, "/result", sent("w2", run_id, 0.9)),
        (404, "/result", sent("w1", "swarm-99", 0.9)),
        *(
            (422, "/runs/start/w1", config)
            for config in ({"LR": 1.0}, {"WIDTH": 3}, {"OPTIMIZER": "adagrad"})
        ),
    ]
    for status, path, body in wrong:
        await refused(swarm.http, status, path, **body)
    for value in ("NaN", "-Infinity", "1e999"):
        text = json.dumps(sent("w1", run_id, 0.987654)).replace("0.987654", value)
        answer = await swarm.http.post("/result", content=text)
        assert (answer.status_code, value in text) == (422, True)
    assert (await swarm.record(run_id)).status == "running"
    await swarm.result("w1", run_id, 0.9)


async def test_a_config_is_handed_out_as_an_experiment_that_runs(swarm: Swarm) -> None:
    given = await swarm.next("w1")

    assert set(given) == {
        *("exp_id", "run_id", "config_delta", "budget_seconds", "priority", "note"),
        *("population_id", "population_strategy", "hypothesis_id", "hypothesis_statement"),
    }
    assert given["exp_id"] == given["run_id"] == "swarm-1"
    assert type(given["budget_seconds"]) is int
    assert given["budget_seconds"] == 300
    assert set(given["config_delta"]) == {"LR", "DEPTH", "OPTIMIZER"}
    assert given["note"] == f"investigate · {given['population_id']} — {given['hypothesis_statement']}"
    run = await swarm.record("swarm-1")
    assert (run.status, run.attempt, run.owner, run.category) == ("running", 0, "w1", "hyperparams")
    assert (run.config_delta, run.baseline_bpb, run.gpu_type) == (given["config_delta"], 1.0, "H100")
    assert run.commit_sha == (run.fingerprint or "")[:7]
    [event] = await events_of(swarm.process, "experiment.started")
    assert (event["experiment_id"], event["worker_id"]) == ("swarm-1", "w1")
    await swarm.policy(**{"budgets.base_s": 60})
    assert (await asked(swarm.http, "/health"))["budget_seconds"] == 60


async def test_asked_again_a_worker_gets_its_run_once_more_and_then_another_one(swarm: Swarm) -> None:
    first = await swarm.next("w1")
    await swarm.tick(first["run_id"], 0.2, 0.9)

    again = await swarm.next("w1")
    assert again == first
    record = await swarm.record(first["run_id"])
    assert (record.handed_out, record.last_progress, record.told) == (2, None, None)

    third = await swarm.next("w1")
    assert third["run_id"] == "swarm-2"
    assert (await swarm.record("swarm-1")).status == "lost"
    assert third["config_delta"] == first["config_delta"]  # it waited for the next worker


async def test_a_run_that_was_stopped_is_never_handed_out_again(swarm: Swarm) -> None:
    run_id = (await swarm.next("w1"))["run_id"]

    stopped = await swarm.http.delete(f"/runs/{run_id}", params={"reason": "loss 3.2 is hopeless"})

    assert stopped.json() == {"ok": True}
    record = await swarm.record(run_id)
    assert (record.status, record.error) == ("stopped", "loss 3.2 is hopeless")
    told_so = await swarm.tick(run_id, 0.4, 1.0)
    assert told_so == {"action": "stop", "reason": "stopped by an operator"}
    assert await swarm.tick(run_id, 0.6, 1.0) == told_so
    assert (await swarm.next("w1"))["run_id"] == "swarm-2"
    assert (await swarm.http.delete(f"/runs/{run_id}")).json() == {"ok": True}


@pytest.mark.parametrize(
    ("verb", "fields", "why"),
    [("pause", {"reason": "the cluster moves"}, "the cluster moves"), ("budget", {"runs": 1}, '"runs"')],
)
async def test_a_swarm_that_begins_no_run(swarm: Swarm, verb: str, fields: dict[str, Any], why: str) -> None:
    await swarm.join("w2")
    await swarm.next("w1")
    await told(swarm.http, f"/api/tag/{verb}", tag="swarm", **fields)
    for answer in (await swarm.http.get("/next_config/w2"), await curl(swarm.http, "/runs/start/w1", {})):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "15")
        assert why in answer.text


async def test_pausing_with_stop_ends_the_runs_at_their_next_word(swarm: Swarm) -> None:
    run_id = (await swarm.next("w1"))["run_id"]
    await told(swarm.http, "/api/tag/pause", tag="swarm", stop_running=True)
    assert (await swarm.tick(run_id, 0.3, 1.0))["action"] == "stop"
    assert (await swarm.record(run_id)).status == "stopped"


async def test_the_newest_tick_is_kept_and_answered_with_an_empty_object(swarm: Swarm) -> None:
    run_id = (await swarm.next("w1"))["run_id"]
    assert await swarm.tick(run_id, 0.25, 0.97) == {}
    await swarm.tick(run_id, 0.15, 0.99)  # it was overtaken

    record = await swarm.record(run_id)
    assert (record.last_progress, record.last_metric) == (0.25, 0.97)
    [active] = (await swarm.http.get("/runs/active")).json()
    shown = {"id": run_id, "progress": 0.25, "metric": 0.97, "state": "active", "budget": 300}
    assert {name: active[name] for name in shown} == shown
    await swarm.result("w1", run_id, 0.9)
    assert await swarm.tick(run_id, 0.8, 0.9) == {}


async def stopping_for_certain(swarm: Swarm) -> None:
    await swarm.policy(**{"stopping.rule": "median", "stopping.warmup_runs": 0, "stopping.min_peers": 1})


async def test_a_run_that_is_stopped_for_its_rank_ends_at_that_tick(swarm: Swarm) -> None:
    await stopping_for_certain(swarm)
    good, bad = (await swarm.next("good"))["run_id"], (await swarm.next("bad"))["run_id"]
    assert await swarm.tick(good, 0.2, 0.9) == {}

    first = await swarm.tick(bad, 0.2, 1.1)

    assert first == {"action": "stop", "reason": REASON}
    record = await swarm.record(bad)
    assert (record.status, record.last_progress, record.last_metric) == ("stopped", 0.2, 1.1)
    assert await swarm.tick(bad, 0.2, 1.1) == first
    stats = await asked(swarm.http, "/runs/stats")
    assert (stats["killed"], stats["active"], stats["kill_rate"]) == (1, 1, 100.0)
    assert (stats["saved_gpu_seconds"], stats["bucket_pools"]["0.2"]["n"]) == (240.0, 2)
    assert len(await events_of(swarm.process, "run.stopping")) == 1


async def test_ranks_are_of_deltas_so_that_a_worse_machine_is_no_worse_run(swarm: Swarm) -> None:
    await stopping_for_certain(swarm)
    await swarm.join("fast", baseline_bpb=1.0)
    await swarm.join("slow", baseline_bpb=2.0)
    fast, slow = (await swarm.next("fast"))["run_id"], (await swarm.next("slow"))["run_id"]
    await swarm.tick(fast, 0.2, 0.99)
    assert await swarm.tick(slow, 0.2, 1.9) == {}
    assert (await swarm.tick(fast, 0.4, 0.99)) == {}
    assert (await swarm.tick(slow, 0.4, 1.995))["action"] == "stop"


async def test_a_repeated_tick_gets_its_first_answer(swarm: Swarm) -> None:
    await stopping_for_certain(swarm)
    one, other = (await swarm.next("a"))["run_id"], (await swarm.next("b"))["run_id"]
    first = await swarm.tick(one, 0.2, 1.1)
    await swarm.tick(other, 0.2, 0.5)
    assert await swarm.tick(one, 0.21, 1.2) == first == {}


EXTENDING: dict[str, Any] = {
    "stopping.rule": "stochastic",
    "stopping.warmup_runs": 0,
    "stopping.min_peers": 1,
    "stopping.extend_at": 0.8,
}


@pytest.mark.parametrize("compare_by", ["delta", "value"])
async def test_the_best_run_is_extended_once_and_judged_by_what_it_had_at_its_budget(
    swarm: Swarm, compare_by: str
) -> None:
    async def extended() -> tuple[int, list[str]]:
        count = (await asked(swarm.http, "/runs/stats"))["extended"]
        assert len(await events_of(swarm.process, "run.extended")) == count
        return count, [run["state"] for run in (await swarm.http.get("/runs/active")).json()]

    await swarm.policy(compare_by=compare_by, **EXTENDING)
    one, best = (await swarm.next("a"))["run_id"], (await swarm.next("b"))["run_id"]
    await swarm.tick(one, 0.8, 1.0)
    for _ in range(2):
        assert await swarm.tick(best, 0.8, 0.8) == {"action": "extend", "budget": 420}
    await swarm.tick(best, 1.0, 0.75)
    await swarm.tick(best, 1.05, 0.74)
    assert await extended() == (0, ["active", "active"])
    await swarm.tick(best, 1.06, 0.73)
    await swarm.tick(best, 1.3, 0.7)
    assert await extended() == (1, ["active", "extended"])
    [event] = await events_of(swarm.process, "run.extended")
    assert event.items() >= {"subject": best, "progress": 1.06, "metric": 0.73, "extra_s": 120}.items()

    await swarm.result("b", best, 0.69)
    record = await swarm.record(best)
    if compare_by == "delta":
        assert record.val_bpb == 0.69
        assert record.delta_bpb == pytest.approx(-0.25)
    else:
        assert (record.val_bpb, record.judged, record.own_value) == (0.75, 0.75, 0.75)
        assert "printed 0.69" in (record.reason or "")


async def test_a_result_is_judged_by_its_delta(swarm: Swarm) -> None:
    await swarm.join("fast", baseline_bpb=1.0)
    await swarm.join("slow", baseline_bpb=2.0)
    given = [("fast", 0.98), ("slow", 1.9), ("fast", 0.97)]
    names = [await swarm.run(worker, value, delta_bpb=-7.0) for worker, value in given]

    best = (await told(swarm.http, "/api/experiment/best", tag="swarm"))["best"]
    assert best["experiment_id"] == names[1]
    assert (best["val_bpb"], best["delta_bpb"]) == (1.9, pytest.approx(-0.1))
    records = [await swarm.record(name) for name in names]
    assert [(r.status, r.val_bpb) for r in records] == [("keep", 0.98), ("keep", 1.9), ("discard", 0.97)]
    assert records[2].delta == pytest.approx(-0.07)
    assert [r.sent_delta_bpb for r in records] == [-7.0] * 3, "it is kept, and nothing else"


async def test_statistics_load_beside_the_event_loop(swarm: Swarm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first result after a start holds all other requests for half a second."""
    loaded: list[str] = []

    async def loading() -> None:
        loaded.append("scipy")

    monkeypatch.setattr(configs, "statistics_loaded", loading)
    await swarm.run_of("w1", 0.98, LR=0.01)
    assert not loaded  # one run is weighed against nothing
    await swarm.run_of("w1", 0.97, LR=0.01)
    assert loaded


async def test_no_workers_baseline_is_in_the_noise(swarm: Swarm) -> None:
    """The metric depends on no worker, and their baselines are wrong."""
    await swarm.join("low", baseline_bpb=0.9)
    await swarm.join("high", baseline_bpb=1.1)
    for value in (1.0, 1.002):
        for name in ("low", "high"):
            await swarm.run_of(name, value, LR=0.001)
    noise = (await told(swarm.http, "/api/report/summary", tag="swarm"))["noise"]
    assert noise == {"df": 2, "sigma": pytest.approx(0.002 / 2**0.5)}


async def test_a_result_sent_twice_is_answered_the_same_and_counted_once(swarm: Swarm) -> None:
    run_id = (await swarm.next("w1"))["run_id"]
    answers = await asyncio.gather(*(swarm.result("w1", run_id, 0.95) for _ in range(6)))
    other = await swarm.result("w1", run_id, 0.5)
    assert answers == [{"ok": True, "total_experiments": 1}] * 6
    assert other == answers[0]
    assert (await swarm.record(run_id)).val_bpb == 0.95
    assert len(await events_of(swarm.process, "experiment.finished")) == 1


async def test_a_run_without_a_value_is_a_crash_or_a_timeout(swarm: Swarm) -> None:
    told_of = dict.fromkeys(("", "CUDA out of memory"), ("crash", "other")) | {"TIMEOUT": ("timeout",) * 2}
    for error, ended in told_of.items():
        run_id = (await swarm.next("w1"))["run_id"]
        assert (await swarm.result("w1", run_id, None, error=error))["total_experiments"] == 0
        record = await swarm.record(run_id)
        assert (record.status, record.error_kind) == ended


async def test_a_result_after_a_stop_stays_with_the_stopped_run(swarm: Swarm) -> None:
    run_id = (await swarm.next("w1"))["run_id"]
    await swarm.http.delete(f"/runs/{run_id}")

    first = [swarm.result("w1", run_id, 0.5) for _ in range(2)]
    answers = [*await asyncio.gather(*first), await swarm.result("w1", run_id, 0.4)]
    answers.append(await swarm.result("w1", run_id, None))

    record = await swarm.record(run_id)
    assert (record.status, record.late_val_bpb, record.val_bpb) == ("stopped", 0.5, None)
    assert answers == [{"ok": True, "total_experiments": 1}] * 4
    assert len(await events_of(swarm.process, "run.reported_late")) == 1


async def test_ticks_keep_a_run_no_longer_than_its_time_limit_and_the_labs_grace(swarm: Swarm) -> None:
    await swarm.policy(**{"budgets.base_s": 300, "stale_after_s": 10_000})
    run_id = (await swarm.next("w1"))["run_id"]
    lab, begun = swarm.process.lab, await swarm.process.lab.now() - 5_000
    await lab.command("HSET", lab.keys.experiment(run_id), "started_at", f"{begun:.6f}")
    await lab.command("ZADD", lab.keys("handed_out"), f"{begun + 660:.6f}", run_id)
    for progress in (0.3, 0.5, 0.5):
        await swarm.tick(run_id, progress, 0.9)
    assert await swarm.swept() == [run_id]


async def test_a_run_whose_worker_is_silent_is_lost_and_its_late_result_counts_once(swarm: Swarm) -> None:
    given = await swarm.next("w1")
    await swarm.silence(given["run_id"])

    assert await swarm.swept() == [given["run_id"]]
    assert await swarm.swept() == []
    handed_on = await swarm.next("w2")
    assert handed_on["config_delta"] == given["config_delta"]
    assert await swarm.tick(given["run_id"], 0.5, 0.9) == {}
    await swarm.result("w1", given["run_id"], 0.9)
    await swarm.result("w1", given["run_id"], 0.9)

    assert (await swarm.record(given["run_id"])).status == "keep"
    assert (await asked(swarm.http, "/health"))["experiments"] == 1


async def test_a_run_that_its_worker_gives_back_is_lost_and_its_config_goes_to_another(swarm: Swarm) -> None:
    given = await swarm.next("w1")
    answers = [await swarm.result("w1", given["run_id"], None, error="returned") for _ in range(2)]
    assert answers == [{"ok": True, "total_experiments": 0}] * 2
    run = await swarm.record(given["run_id"])
    assert (run.status, run.error) == ("lost", "its worker's owner gave it back")
    handed_on = await swarm.next("w2")
    assert handed_on["config_delta"] == given["config_delta"]
    assert handed_on["run_id"] != given["run_id"]


async def test_a_false_value_of_a_swarms_worker_leads_until_it_is_taken_back(swarm: Swarm) -> None:
    await stopping_for_certain(swarm)
    await swarm.join("liar", baseline_bpb=9.0)
    true = await swarm.run_of("honest", 0.95, LR=0.001)
    false = (await told(swarm.http, "/runs/start/liar", LR=0.002))["run_id"]
    await swarm.tick(false, 0.2, 1.0)
    await swarm.result("liar", false, 1.0)
    before = await told(swarm.http, "/api/experiment/best", tag="swarm")

    for _ in range(2):
        await told(swarm.http, "/api/experiment/retract", experiment_id=false, reason="nobody measures that")

    assert (before["best"]["experiment_id"], before["best"]["delta_bpb"]) == (false, -8.0)
    after = await told(swarm.http, "/api/experiment/best", tag="swarm")
    assert after["best"]["experiment_id"] == true
    [leading] = (await swarm.http.get("/leaderboard")).json()
    assert (leading["worker_id"], leading["experiment_count"]) == ("honest", 1)
    assert leading["best_delta_bpb"] == pytest.approx(-0.05)
    stats = await asked(swarm.http, "/runs/stats")
    assert (stats["completed"], {pool["n"] for pool in stats["bucket_pools"].values()}) == (1, {0})
    assert (await swarm.record(false)).told == {"0:0.2": "continue"}


async def judged(swarm: Swarm) -> list[str]:
    return list((await told(swarm.http, "/api/experiment/judge-retests", tag="swarm"))["steps"])


async def a_keep_that_waits(swarm: Swarm) -> None:
    """Worker a's second keep, swarm-2, stands on its first one: both have to be run again. Worker b is there, too."""
    await swarm.join("b", baseline_bpb=2.0)
    await swarm.run_of("a", 0.99, LR=0.001)
    await swarm.run_of("a", 0.9, LR=0.002)  # what is drawn might be a repeat
    assert (await swarm.record("swarm-2")).trust == "provisional"
    assert sorted(await judged(swarm)) == ["runagain swarm-1", "runagain swarm-2"]


async def test_keeps_are_run_again_by_another_worker_first_and_confirmed_where_that_bears_them_out(
    swarm: Swarm,
) -> None:
    await a_keep_that_waits(swarm)

    own = await swarm.next("a")
    again = await swarm.next("b")

    assert own["run_id"] == "swarm-3"
    assert again["run_id"] == "swarm-1.2"
    assert again["config_delta"] == (await swarm.record("swarm-1")).config_delta
    assert await swarm.next("b") == again
    assert await swarm.tick("swarm-1.2", 0.4, 1.8) == {}
    record = await swarm.record("swarm-1.2")
    assert (record.status, record.worker_id, record.baseline_bpb) == ("running", "b", 2.0)

    await swarm.result("b", "swarm-1.2", 1.99)
    assert await swarm.run("b", 1.91) == "swarm-2.2"
    await swarm.result("b", "swarm-2.2", 1.91)
    assert "confirm swarm-2" in await judged(swarm)
    assert (await asked(swarm.http, "/health"))["experiments"] == 4
    assert (await swarm.record("swarm-2")).trust == "confirmed"
    assert (await swarm.record("swarm-2.2")).delta_bpb == pytest.approx(-0.09)
    [leading] = (await swarm.http.get("/leaderboard")).json()
    assert leading["worker_id"] == "a"


async def test_a_retest_that_somebody_asks_for_waits_for_the_swarms_workers(swarm: Swarm) -> None:
    await swarm.run("a", 0.99)
    asked_for = await told(swarm.http, "/api/experiment/retest", experiment_id="swarm-1")
    assert (await swarm.record(asked_for["retest_id"])).status == "registered"
    assert (await swarm.next("a"))["run_id"] == asked_for["retest_id"]


async def test_a_repeat_that_is_lost_is_begun_anew(swarm: Swarm) -> None:
    await a_keep_that_waits(swarm)
    again = (await swarm.next("b"))["run_id"]
    await swarm.silence(again)
    assert await swarm.swept() == ["swarm-1.2"]
    assert await judged(swarm) == ["runagain swarm-1"]
    assert {(await swarm.next("b"))["run_id"], again} == {"swarm-1.3", "swarm-1.2"}


async def test_a_worker_syncs_what_the_swarm_knows(swarm: Swarm) -> None:
    await swarm.run("w1", 0.95)
    best = await swarm.record(await swarm.run("w1", 0.9))

    answer = await swarm.http.get("/sync/w1")

    synced = answer.json()
    assert (synced["program_md"], synced["program_digest"]) == ("", "e3b0c44298fc1c14")
    assert [d["name"] for d in synced["dimensions"]] == ["LR", "DEPTH", "OPTIMIZER"]
    assert {d["name"]: d["best_known_value"] for d in synced["dimensions"]} == best.config_delta
    assert [c["delta_bpb"] for c in synced["top_configs"]] == [pytest.approx(-0.1), pytest.approx(-0.05)]
    assert (synced["experiment_count"], synced["active_workers"], synced["budget_seconds"]) == (2, 1, 300)
    assert synced["updated_at"] == pytest.approx(best.finished_at)
    again = await swarm.http.get("/sync/w1", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert (await swarm.http.post("/sync/w1")).json() == synced


async def test_a_viewer_previews_the_answer_that_a_worker_would_get_and_changes_nothing(swarm: Swarm) -> None:
    viewer = await bearer(swarm.process, "eve", "viewer")
    await swarm.run("w1", 0.9)
    synced = (await swarm.http.get("/sync/w1")).json()
    before = await dump(swarm.process.lab)

    seen = await curl(swarm.http, "/api/swarm/preview", {"worker_id": "w1"}, **viewer)

    assert seen.json() == synced
    assert await dump(swarm.process.lab) == before
    problem(await swarm.http.get("/sync/w1", headers=viewer), 403)
    problem(await curl(swarm.http, "/api/swarm/preview", {"worker_id": "none"}, **viewer), 404)


async def test_a_worker_that_comes_back_keeps_its_run(swarm: Swarm, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {(await swarm.next(name))["run_id"] for name in ("w1", "w2")}
    overdue = Experiments.overdue
    for run_id in runs:
        await swarm.silence(run_id)

    async def slow(self: Experiments) -> list[Experiment]:
        found = await overdue(self)
        assert {run.experiment_id for run in found} == runs
        await swarm.tick("swarm-1", 0.3, 1.0)
        await swarm.next("w2")  # it is handed the run again
        return found

    monkeypatch.setattr(Experiments, "overdue", slow)
    assert await swarm.swept() == []
    assert [(await swarm.record(run_id)).status for run_id in runs] == ["running"] * 2


async def test_a_maximizing_swarm_is_led_by_the_highest(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client, "swarm", metric={"name": "accuracy", "direction": "maximize"})
    await told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    swarm = Swarm(client, process)
    for worker in ("good", "poor"):
        await swarm.join(worker, baseline_bpb=0.5)
    _, highest, _ = [await swarm.run("good", value) for value in (0.6, 0.9, 0.3)]
    for value in (0.2, 0.4):
        await swarm.run("poor", value)

    board = (await client.get("/leaderboard")).json()
    assert [row["worker_id"] for row in board] == ["good", "poor"]
    assert [row["best_delta_bpb"] for row in board] == pytest.approx([0.4, -0.1])
    assert board[0]["best_config_delta"] == (await swarm.record(highest)).config_delta
    assert (await asked(client, "/runs/stats"))["best_delta"] == pytest.approx(0.4)
    shown = [config["delta_bpb"] for config in (await asked(client, "/sync/good"))["top_configs"]]
    assert shown == sorted(shown, reverse=True)
    assert shown[0] == pytest.approx(0.4)
    assert await swarm.audited() == []


async def test_a_baseline_is_in_the_metric_of_its_tag(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client, "swarm", metric={"name": "log_loss"})
    await told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    await Swarm(client, process).join("w1", baseline_bpb=-3.5)
    refusal = await refused(client, 422, "/register", **JOINING | {"worker_id": "w2", "baseline_bpb": 1e300})
    assert refusal["detail"].startswith("the baseline log_loss is")
    assert "train.py" in refusal["hint"]


async def test_a_run_of_a_workers_own_choice_runs_beside_its_assignment(swarm: Swarm) -> None:
    given = await swarm.next("w1")
    extra = (await curl(swarm.http, "/runs/start/w1", {"LR": 0.002, "OPTIMIZER": "sgd"})).json()
    assert extra == {"run_id": "swarm-2", "budget_seconds": 300}
    assert (await swarm.record("swarm-2")).config_delta == {"LR": 0.002, "OPTIMIZER": "sgd"}
    await swarm.result("w1", "swarm-2", 0.9)
    await swarm.result("w1", given["run_id"], 0.95)
    assert (await swarm.next("w1"))["run_id"] == "swarm-3"


async def test_a_worker_has_a_bounded_number_of_runs_at_once(swarm: Swarm) -> None:
    await swarm.join("w2")
    await swarm.next("w1")

    answers = await asyncio.gather(*(curl(swarm.http, "/runs/start/w1", {}) for _ in range(MOST_ACTIVE + 3)))

    assert sorted(a.status_code for a in answers) == [200] * (MOST_ACTIVE - 1) + [409] * 4
    full = await refused(swarm.http, 409, "/runs/start/w1")
    assert f"{MOST_ACTIVE} runs" in full["detail"]
    assert "/result" in full["hint"]
    tag = await told(swarm.http, "/api/tag/budget", tag="swarm")
    assert tag["runs"]["reserved"] == (await asked(swarm.http, "/runs/stats"))["active"] == MOST_ACTIVE
    assert (await curl(swarm.http, "/runs/start/w2", {})).status_code == 200
    await swarm.result("w1", "swarm-2", 0.9)
    assert (await curl(swarm.http, "/runs/start/w1", {})).status_code == 200


async def test_a_run_that_was_lost_no_longer_counts_among_those_of_its_worker(swarm: Swarm) -> None:
    await swarm.join("w1")
    for _ in range(MOST_ACTIVE):
        await curl(swarm.http, "/runs/start/w1", {})
    await swarm.silence("swarm-1")

    assert await swarm.swept() == ["swarm-1"]
    assert (await asked(swarm.http, "/health"))["queue_depth"] == 0, "nobody else is handed what it chose"

    assert (await curl(swarm.http, "/runs/start/w1", {})).status_code == 200
    await swarm.result("w1", "swarm-1", 0.9)
    await refused(swarm.http, 409, "/runs/start/w1")
    assert (await swarm.next("w1"))["run_id"] == f"swarm-{MOST_ACTIVE + 2}"


async def test_a_dimension_named_tag_collides_with_nothing(swarm: Swarm) -> None:
    named = {"name": "tag", "dtype": "int", "min": 1, "max": 9}
    await told(swarm.http, "/api/dimension/define", tag="swarm", dimensions=[named])
    run_id = await swarm.run_of("w1", 0.9, tag=3)
    assert (await swarm.record(run_id)).config_delta == {"tag": 3}


async def test_a_swarm_hands_out_no_agent_s_experiment(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client, "mar11")
    await told(client, "/api/dimension/define", tag="mar11", dimensions=DIMENSIONS)
    await registered(client, "mar11")
    swarm = Swarm(client, process)
    await swarm.join("w1", tag="mar11")
    assert (await swarm.next("w1"))["run_id"] == "mar11-2"


async def test_before_anybody_has_joined_there_is_nothing_to_list(client: httpx.AsyncClient) -> None:
    assert (await client.get("/runs/active")).json() == []
    assert (await client.get("/leaderboard")).json() == []
    assert (await asked(client, "/populations"))["count"] == 0
    assert await asked(client, "/api/swarm/workers") == {"workers": [], "total": 0}
    assert (await asked(client, "/runs/stats"))["kill_rate"] == 0.0
    assert (await client.get("/pipeline/status?tag=swarm")).json()["enabled"] is False


async def test_an_organiser_alone_sees_how_to_reach_the_owners_of_the_workers(swarm: Swarm) -> None:
    began, root = await swarm.process.lab.now(), await bearer(swarm.process, "olga", "operator")
    swarm.http.headers.update(root)
    token = await swarm.join("a", contact="ann@example.org")
    await swarm.join("b", gpu_type="A100", baseline_bpb=2.0)
    await swarm.run("a", 0.9)
    run_id = (await swarm.next("a"))["run_id"]
    await curl(swarm.http, "/runs/start/a", {})

    listed = await asked(swarm.http, "/api/swarm/workers")
    second = await asked(swarm.http, "/api/swarm/workers?limit=1&offset=1")

    ann, bob = listed["workers"]
    assert listed["total"] == second["total"] == 2
    assert second["workers"] == [bob]
    assert (ann["number"], ann["worker_id"], ann["contact"]) == (1, "a", "ann@example.org")
    assert (ann["runs"], ann["active"], ann["run_id"]) == (1, 2, run_id)
    assert began <= bob["joined_at"] <= ann["heard_at"] <= await swarm.process.lab.now()
    assert (bob["gpu_type"], bob["baseline_bpb"], bob["contact"], bob["run_id"]) == ("A100", 2.0, None, None)

    viewer = await bearer(swarm.process, "vera", "viewer")
    del swarm.http.headers["authorization"]
    for headers in (viewer, {"x-worker-token": token}):
        problem(await swarm.http.get("/api/swarm/workers", headers=headers), 403)
    for path in ("/leaderboard", "/populations", "/runs/active", "/api/experiment/swarm-1"):
        answer = await swarm.http.get(path, headers=viewer)
        assert answer.status_code == 200, path
        assert "ann@example.org" not in answer.text
    swarm.http.headers.update(root)  # for the audit


async def test_a_worker_does_nothing_under_another_workers_name(swarm: Swarm) -> None:
    client = swarm.http
    mine, theirs = await swarm.join("w1"), await swarm.join("w2")
    run_id = (await swarm.next("w2"))["run_id"]
    me = {"x-worker-token": mine}

    for method, path, body in (
        ("GET", "/next_config/w2", None),
        ("GET", "/sync/w2", None),
        ("POST", "/runs/start/w2", {}),
        ("POST", "/tick", {"id": run_id, "p": 0.2, "m": 1.0}),
        ("POST", "/result", sent("w2", run_id, 0.9)),
        ("POST", "/register", {"worker_id": "w2", "gpu_type": "H100", "baseline_bpb": 1.0}),
        ("DELETE", f"/runs/{run_id}", None),
    ):
        answer = await client.request(method, path, json=body, headers=me)
        assert answer.status_code == 403, (path, answer.text)
    assert (await client.get("/next_config/w2", headers={"x-worker-token": theirs})).status_code == 200
    assert (await client.get("/next_config/w2", headers={"x-worker-token": "wrong"})).status_code == 401


async def test_a_closed_lab_admits_workers_with_an_enroll_token_for_workers_alone(
    local: httpx.AsyncClient, process: Process
) -> None:
    root = await bearer(process, "olga", "operator")
    local.headers.update(root)
    await told(local, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    enroll = dict[str, str]()
    for role in ("worker", "agent"):
        wish = {"name": f"e-{role}", "role": role, "kind": "enroll", "uses": 1}
        enroll[role] = (await told(local, "/api/token/issue", **wish))["token"]
    del local.headers["authorization"]

    for wrong in (None, "guess", enroll["agent"]):
        document = problem(await local.post("/register", json=JOINING | {"enroll_token": wrong}), 401)
        assert document["detail"] == "Invalid enroll token"
    joined = await local.post("/register", json=JOINING | {"enroll_token": enroll["worker"]})
    assert joined.status_code == 200, joined.text
    used_up = await local.post(
        "/register", json=JOINING | {"worker_id": "w2", "enroll_token": enroll["worker"]}
    )
    problem(used_up, 401)
    taken_over = await local.post("/register", json=JOINING | {"enroll_token": enroll["worker"]})
    problem(taken_over, 401)
    mine = {"x-worker-token": joined.json()["worker_token"]}
    assert (await local.post("/register", json=JOINING, headers=mine)).status_code == 200
    assert (await local.get("/next_config/w1", headers=mine)).status_code == 200
    assert (await local.get("/next_config/w1")).status_code == 401


@asynccontextmanager
async def from_address(client: httpx.AsyncClient, address: str) -> AsyncIterator[httpx.AsyncClient]:
    """The same server, as another machine reaches it."""
    app = client._transport.app  # type: ignore[attr-defined]
    transport = httpx.ASGITransport(app=app, client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url=client.base_url) as other:
        yield other


async def test_an_address_guesses_the_teams_secret_no_faster_than_ten_times_a_minute(
    settings: Settings,
) -> None:
    secret = SecretStr("owls")
    with_secret = settings.model_copy(update={"swarm_secret": secret})
    async with opened("web", with_secret) as process, http_client(process, by_key=False) as client:
        root = await bearer(process, "olga", "operator")
        asked_for = {"name": "friends", "role": "worker", "kind": "enroll", "uses": 1}
        enroll = (await client.post("/api/token/issue", json=asked_for, headers=root)).json()["token"]

        async def joins(http: httpx.AsyncClient, worker_id: str, enroll_token: str) -> httpx.Response:
            body = JOINING | {"worker_id": worker_id}
            return await http.post("/register", json=body | {"enroll_token": enroll_token})

        for nth in range(WRONG_TRIES + 2):
            assert (await joins(client, f"w{nth}", "owls")).status_code == 200, "right ones are not counted"
        guesses = [await joins(client, "guesser", f"owl{nth}") for nth in range(WRONG_TRIES + 2)]
        right = await joins(client, "guesser", "owls")
        async with from_address(client, "10.1.2.3") as other:
            elsewhere = await joins(other, "elsewhere", "owls")

        assert [a.status_code for a in guesses] == [401] * WRONG_TRIES + [429] * 2
        assert {a.json()["detail"] for a in guesses[:WRONG_TRIES]} == {"Invalid enroll token"}
        problem(right, 429)
        assert 1 <= int(right.headers["retry-after"]) <= TRIES_S
        assert elsewhere.status_code == 200, elsewhere.text
        assert (await joins(client, "friend", enroll)).status_code == 200, "an enroll token is no guess"
        await process.lab.command("DEL", process.lab.keys("tries", "127.0.0.1"))
        assert (await joins(client, "guesser", "owls")).status_code == 200, "after a minute"


async def test_who_knows_the_teams_secret_fills_no_lab_with_workers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swarms, "JOINS_BURST", 3)
    monkeypatch.setattr(swarms, "JOINS_PER_S", 0.001)
    with_secret = settings.model_copy(update={"swarm_secret": SecretStr("owls")})
    async with opened("web", with_secret) as process, http_client(process) as client:
        root = await bearer(process, "olga", "operator")

        async def joins(worker_id: str, **headers: str) -> httpx.Response:
            body = JOINING | {"worker_id": worker_id}
            secret = {} if headers else {"enroll_token": "owls"}
            return await client.post("/register", json=body | secret, headers=headers)

        joined = [await joins(f"w{nth}") for nth in range(5)]
        again = await joins("w0", **{"X-Worker-Token": joined[0].json()["worker_token"]})
        by_operator = await joins("mine", **root)

        assert [a.status_code for a in joined] == [200, 200, 200, 429, 429]
        over = problem(joined[3], 429)
        assert 0 < over["retry_after"] <= 1000
        assert again.status_code == by_operator.status_code == 200
        assert await Swarms(process.lab).worker("w3") is None
        await process.lab.command("DEL", process.lab.keys("joining"))
        assert (await joins("w3")).status_code == 200, "once it has waited"


async def test_a_worker_gets_no_name_that_another_token_bears(
    client: httpx.AsyncClient, process: Process
) -> None:
    root = await bearer(process, "olga", "operator")
    await bearer(process, "ann", "agent")
    client.headers.update(root)
    document = await refused(client, 409, "/register", worker_id="Ann", gpu_type="H100", baseline_bpb=1.0)
    assert "taken" in document["detail"]


async def test_agents_register_nothing_in_a_swarms_tag(swarm: Swarm) -> None:
    document = await refused(swarm.http, 409, "/api/experiment/register", **idea("swarm"))
    assert "swarm" in document["detail"]
    run_id = (await swarm.next("w1"))["run_id"]
    await refused(swarm.http, 409, "/api/experiment/complete", experiment_id=run_id, val_bpb=0.1)


async def test_what_is_compared_stays_once_there_are_results(swarm: Swarm) -> None:
    await swarm.policy(compare_by="value")
    await swarm.policy(compare_by="delta")
    await swarm.run("w1", 0.9)
    change = {"tag": "swarm", "policy": {"compare_by": "value"}}
    await refused(swarm.http, 409, "/api/search/set-policy", **change)


async def test_where_values_are_compared_a_lower_value_is_better_whatever_the_baseline(swarm: Swarm) -> None:
    await swarm.policy(compare_by="value")
    await swarm.join("slow", baseline_bpb=2.0)
    await swarm.join("fast", baseline_bpb=1.0)
    await swarm.run("slow", 1.5)
    better = await swarm.record(await swarm.run("fast", 0.99))
    assert (better.status, better.judged) == ("keep", 0.99)
    assert better.delta == pytest.approx(0.51)
    assert better.delta_bpb == pytest.approx(-0.01)


async def test_where_values_are_compared_all_that_people_see_shows_values(
    swarm: Swarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    plots: list[tuple[list[float], str]] = []

    def drawing(points: Sequence[Point], *more: Any) -> bytes:
        plots.append(([p.value for p in points], more[3]))
        return b""

    monkeypatch.setattr("functions.people.plot.draw_progress", drawing)
    await swarm.policy(compare_by="value")
    await swarm.join("a", baseline_bpb=2.0)
    first = await swarm.run_of("a", 1.5, LR=0.001)
    second = await swarm.run_of("a", 1.4, LR=0.002)
    third = await swarm.run_of("a", 1.45, LR=0.003)

    best = (await told(swarm.http, "/api/experiment/best", tag="swarm"))["best"]
    night = await told(swarm.http, "/api/report/night", tag="swarm")
    listed = (await told(swarm.http, "/api/report/runs", tag="swarm"))["runs"]
    summary = await told(swarm.http, "/api/report/summary", tag="swarm")
    diff = await told(swarm.http, "/api/report/diff", experiment_a=first, experiment_b=second)

    assert (best["val_bpb"], "delta_bpb" in best) == (1.4, False)
    assert (night["metric"], night["by_delta"]) == ("val_bpb", False)
    assert (night["first"], night["last"], night["best"], night["first_seen"]) == (1.5, 1.4, 1.4, 1.4)
    assert listed["value"] == [1.45, 1.4, 1.5]
    assert listed["gain"] == [pytest.approx(-0.05), pytest.approx(0.1), None]
    kept = summary["bpb_progression"]
    assert [(k["val_bpb"], "delta_bpb" in k) for k in kept] == [(1.5, False), (1.4, False)]
    assert diff["delta_bpb"] == pytest.approx(-0.1)
    [top, *_] = (await asked(swarm.http, "/sync/a"))["top_configs"]
    assert top["config_delta"] == (await swarm.record(second)).config_delta
    assert (await swarm.record(third)).judged_val_bpb is None
    await swarm.http.get("/api/report/progress.svg?tag=swarm")
    assert plots == [([1.5, 1.4, 1.45], "val_bpb")]


async def test_where_values_are_compared_one_worker_s_repeats_are_compared_as_values(swarm: Swarm) -> None:
    await swarm.policy(compare_by="value")
    await swarm.join("a", baseline_bpb=2.0)
    await swarm.run_of("a", 0.99, LR=0.001)
    await swarm.run_of("a", 0.9, LR=0.002)
    assert sorted(set(await judged(swarm))) == ["runagain swarm-1", "runagain swarm-2"]
    for again, value in (("swarm-1.2", 0.98), ("swarm-1.3", 0.98), ("swarm-2.2", 1.1)):
        assert await swarm.run("a", value) == again

    assert "demote swarm-2" in await judged(swarm)
    lucky = await swarm.record("swarm-2")
    assert (lucky.status, lucky.trust) == ("discard", "demoted")
    assert (await swarm.record("swarm-2.2")).own_value == 1.1
    best = (await told(swarm.http, "/api/experiment/best", tag="swarm"))["best"]
    assert (best["experiment_id"], best["claimed_bpb"], best["claimed_n"]) == ("swarm-1", 0.98, 2)
    [demoted] = await events_of(swarm.process, "experiment.demoted")
    assert demoted["retests"] == [1.1]


async def test_where_values_are_compared_further_runs_contradict_a_false_first_run(swarm: Swarm) -> None:
    await swarm.policy(compare_by="value", keep_rule="confirmed")
    await swarm.join("a", baseline_bpb=2.0)
    for nth, value in enumerate((1.0, 1.001, 0.999, 1.0, 1.001, 0.999)):
        await swarm.run_of("a", value, LR=0.001, DEPTH=1 + nth // 3)
    false = await swarm.run_of("a", 0.5, LR=0.01)
    mistake = await swarm.run_of("a", 1.0, LR=0.01)
    await told(swarm.http, "/api/experiment/retract", experiment_id=mistake, reason="a mistake")
    for value in (1.002, 1.001, 1.003):
        await swarm.run_of("a", value, LR=0.01)

    await judged(swarm)

    record = await swarm.record(false)
    assert record.reason == CONTRADICTED
    assert record.judged == pytest.approx(1.002)


async def test_where_values_are_compared_a_run_of_its_code_is_judged_anew_by_values(swarm: Swarm) -> None:
    await swarm.policy(compare_by="value")
    await swarm.join("a", baseline_bpb=2.0)
    await swarm.run_of("a", 0.9, LR=0.001)
    first = await swarm.run_of("a", 1.2, LR=0.002)
    later = [await swarm.run_of("a", value, LR=0.002) for value in (1.1, 1.3)]
    await told(swarm.http, "/api/experiment/retract", experiment_id=first, reason="a mistake")
    records = [await swarm.record(name) for name in later]
    assert [r.judged for r in records] == [pytest.approx(1.1), pytest.approx(1.2)]


async def test_the_night_names_the_metric_of_an_agent_s_best_beside_a_swarm(swarm: Swarm) -> None:
    await swarm.policy(compare_by="value")
    for value in (1.3, 1.2):
        await tried(swarm.http, value, "swarm")
    await swarm.join("w1", baseline_bpb=2.0)
    await swarm.run("w1", 1.5)
    night = await told(swarm.http, "/api/report/night", tag="swarm")
    assert (night["metric"], night["by_delta"], night["best"]) == ("val_bpb", False, 1.2)
    assert (night["first"], night["last"]) == (1.3, 1.2)


async def test_a_first_run_that_is_worse_than_its_baseline_is_no_best(swarm: Swarm) -> None:
    await swarm.policy(keep_rule="confirmed")
    worse = await swarm.record(await swarm.run("w1", 1.05))
    await refused(swarm.http, 404, "/api/experiment/best", tag="swarm")
    better = await swarm.record(await swarm.run("w1", 0.99))
    assert (worse.status, worse.trust, worse.improved) == ("discard", None, False)
    assert worse.delta == pytest.approx(-0.05)
    assert (better.status, better.improved) == ("keep", True)
    assert better.delta == pytest.approx(0.01)


WOUNDS: Mapping[str, tuple[str, ...]] = {
    "a run that is handed out, but not in the index": ("ZREM", "handed_out", "swarm-3"),
    "a run in the index that has ended": ("ZADD", "handed_out", "1", "swarm-1"),
    "a worker with a run that has ended": ("HSET", "swarm_workers:w1", "run_id", "swarm-1"),
    "a worker's count of runs": ("HINCRBY", "swarm_workers:w1", "runs", "1"),
    "a worker's count of runs that go on": ("HINCRBY", "swarm_workers:w1", "active", "1"),
    "a worker's number": ("HSET", "swarm_workers:w1", "number", "7"),
    "a worker that is none": ("ZREM", "swarm_members:swarm", "w1"),
    "a worker's runs by delta": ("ZADD", "worker_runs:w1", "-9", "swarm-1"),
    "a tag's count of repeats": ("HINCRBY", "tags:swarm", "repeated", "1"),
    "who leads": ("ZADD", "leaders:swarm", "-9", "w1"),
    "a config's trials": ("HINCRBY", "configs:swarm", "FINGERPRINT:trials", "1"),
    "a config's runs in flight": ("HINCRBY", "configs:swarm", "FINGERPRINT:in_flight", "1"),
}


async def test_the_audit_finds_every_wound_of_a_swarm(swarm: Swarm, redis_client: Redis) -> None:
    await swarm.run("w1", 0.95)
    await swarm.run("w1", 0.9)
    await swarm.next("w1")
    name = (await swarm.record("swarm-1")).fingerprint or ""
    for wound, (command, short, *words) in WOUNDS.items():
        assert await swarm.audited() == []
        key = f"{swarm.process.lab.keys()}:{short}"
        with for_a_while(redis_client, {key}):
            await swarm.process.lab.command(command, key, *(w.replace("FINGERPRINT", name) for w in words))
            assert await swarm.audited() != [], wound


async def test_more_configs_are_asked_for_once_half_are_handed_out_or_none_are_left(swarm: Swarm) -> None:
    before = await few_left(swarm)
    await swarm.run("w1", 0.9)
    assert await few_left(swarm) == [*before, 0]
    assert (await told(swarm.http, "/api/swarm/refill", tag="swarm"))["waiting"] == {"swarm": 8}
    for _ in range(3):
        await swarm.run("w1", 0.95)
    assert await few_left(swarm) == [*before, 0]
    assert (await asked(swarm.http, "/health"))["queue_depth"] == 5
    for _ in range(2):
        await swarm.run("w1", 0.95)
        assert await few_left(swarm) == [*before, 0, 4]


async def few_left(swarm: Swarm) -> list[int]:
    """How many configs were left whenever more were asked for."""
    return [told["left"] for told in await events_of(swarm.process, "proposals.few")]
