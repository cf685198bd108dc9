"""Early stopping: the lab's workers rank a run's reports among those of its tag, and end the worst."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import httpx
import pytest

from functions.experiments.views.hints import NO_SIGNAL
from functions.kernel.lanes import Extension, Order
from functions.kernel.process.lifecycle import Process
from functions.runs.leases import ranked
from functions.runs.rules.stopping import REASON
from state.experiments import Experiments
from state.experiments.ranking import ranks_at
from state.policy import LONGEST_EXTENSION_S, TickSource
from state.records import Experiment
from state.rq_jobs import gpu_queue
from state.train_queue import broker
from tests.functions.runs.test_train import OneRunner
from tests.labs import add_gpu, asked, begun, events_of, expire, idea, open_tag, told, tried
from tests.lane import trained
from workers.attempt.job import HaltedRun, TrainedRun, TrainingJob, TrainingResult, Watcher

Ticks = Sequence[tuple[float, float]]
"""(metric, progress) as a script reports them."""
CERTAIN: dict[str, Any] = {"stopping.rule": "stochastic", "stopping.max_prob": 1.0, "baseline_first": False}
CERTAIN |= {"stopping.warmup_runs": 5, "stopping.min_peers": 5}
"""The worst of six runs is stopped, whatever is drawn for it."""


class Reporting(OneRunner):
    """A runner whose script reports these ticks, and obeys."""

    def __init__(self) -> None:
        super().__init__()
        self.ticks: Ticks = ()
        self.prints: float | None = None
        """The metric, where that is not its last report."""
        self.orders: list[Order | Extension] = []
        self.sources: list[TickSource] = []
        """Where the ticks of its runs are to come from."""

    async def run(self, job: TrainingJob, watcher: Watcher, *, metric: str) -> TrainingResult:
        self.orders = []
        self.sources.append(job.tick_source)
        value = 1.0
        for value, progress in self.ticks:
            self.orders.append(await watcher.tick(value, progress))
            if self.orders[-1] == "stop":
                return HaltedRun("stop")
        value = self.prints or value
        return TrainedRun({metric: value}, evaluator_hash="e1", gpu_class="H100", log_tail="", metric=value)


class Lab:
    """A lab with one GPU, whose runs report what a test wants."""

    def __init__(self, client: httpx.AsyncClient, process: Process) -> None:
        self.client = client
        self.process = process
        self.runner = Reporting()

    async def run(
        self, *ticks: tuple[float, float], tag: str = "mar11", prints: float | None = None, **changes: Any
    ) -> dict[str, Any]:
        """Train one experiment that reports this; answers its record."""
        self.runner.prints = prints
        submitted = await told(self.client, "/api/experiment/submit", **idea(tag, **changes))
        return await self.train(submitted["experiment_id"], *ticks)

    async def train(self, experiment_id: str, *ticks: tuple[float, float]) -> dict[str, Any]:
        self.runner.ticks = ticks
        await told(self.client, "/api/pool/dispatch")
        await trained(self.client, self.runner)
        shown: dict[str, Any] = (await asked(self.client, f"/api/experiment/{experiment_id}"))["experiment"]
        return shown

    async def begin(self) -> tuple[Experiments, Experiment]:
        """The next experiment, whose run has begun; a test reports for it."""
        submitted = await told(self.client, "/api/experiment/submit", **idea())
        await told(self.client, "/api/pool/dispatch")
        return Experiments(self.process.lab), await begun(self.process, submitted["experiment_id"])

    @property
    def orders(self) -> list[Order | Extension]:
        return self.runner.orders

    async def pool(self, bucket: float, rank_class: str = "H100") -> dict[str, float]:
        return await pool(self.process, bucket, rank_class)

    async def audited(self) -> list[str]:
        return list((await told(self.client, "/api/lab/audit"))["violations"])


async def pool(process: Process, bucket: float, rank_class: str, tag: str = "mar11") -> dict[str, float]:
    """What runs had at a bucket."""
    key = ranks_at(process.lab.keys, tag, rank_class, bucket)
    rows = await process.lab.command("ZRANGE", key, 0, -1, "WITHSCORES", withscores=True)
    return {str(name): float(value) for name, value in rows}


@pytest.fixture
async def lab(client: httpx.AsyncClient, process: Process) -> Lab:
    await add_gpu(client)
    return Lab(client, process)


async def test_the_worst_of_six_runs_is_stopped_with_what_it_had_reported(lab: Lab) -> None:
    await open_tag(lab.client, policy=CERTAIN)
    for n in range(5):
        run = await lab.run((2 + n / 10, 0.2), (1 + n / 10, 0.4), (0.9 + n / 10, 1.0))
        assert run["status"] != "stopped"

    worst = await lab.run((3.0, 0.2), (2.9, 0.4), (2.8, 1.0))

    assert lab.orders == ["stop"]
    assert (worst["status"], worst["last_progress"], worst["val_bpb"]) == ("stopped", 0.2, 3.0)
    assert worst["error"] == REASON
    [event] = await events_of(lab.process, "run.stopping")
    shown = ("subject", "bucket", "metric", "rank", "peers", "told", "chance")
    assert [event[name] for name in shown] == ["mar11-6", 0.2, 3.0, 0.0, 5, "stop", 1.0]
    assert (await told(lab.client, "/api/report/summary", tag="mar11"))["stats"]["stopped"] == 1
    assert await lab.audited() == []


async def test_a_run_enters_each_pool_once_with_its_first_tick_there(lab: Lab) -> None:
    await open_tag(lab.client, policy=CERTAIN)

    await lab.run((3.0, 0.1), (2.5, 0.16), (2.4, 0.2), (2.3, 0.24), (2.0, 0.5), (1.5, 1.0))

    assert await lab.pool(0.2) == {"mar11-1": 2.5}
    assert await lab.pool(0.4) == {}
    assert await lab.pool(1.0) == {"mar11-1": 1.5}
    ticked = await events_of(lab.process, "run.ticked")
    assert [(e["bucket"], e["metric"], e["told"]) for e in ticked] == [
        (0.2, 2.5, "continue"),
        (1.0, 1.5, "continue"),
    ]


async def test_a_retest_is_neither_ranked_nor_stopped(lab: Lab) -> None:
    await open_tag(lab.client, policy=CERTAIN)
    for n in range(5):
        await lab.run((1.0 + n / 10, 0.2), (1.0 + n / 10, 1.0))
    retest = await told(lab.client, "/api/experiment/retest", experiment_id="mar11-1")

    ended = await lab.train(retest["retest_id"], (9.0, 0.2), (9.0, 1.0))

    assert ended["status"] == "measured"
    assert len(await lab.pool(0.2)) == 5


async def test_a_baseline_is_ranked_and_never_stopped(lab: Lab, process: Process) -> None:
    await open_tag(lab.client, base_commit="0123456", policy=CERTAIN | {"stopping.warmup_runs": 0})
    pool = ranks_at(process.lab.keys, "mar11", "H100", 0.2)
    await process.lab.command("ZADD", pool, *[word for n in range(5) for word in (f"{n}.0", f"other-{n}")])
    await told(lab.client, "/api/search/set-policy", tag="mar11", policy={"baseline_first": True})
    submitted = await told(lab.client, "/api/experiment/submit", **idea())

    baseline = await lab.train("mar11-1", (99.0, 0.2), (1.0, 1.0))

    assert submitted["experiment_id"] != "mar11-1"
    assert (baseline["status"], baseline["baseline"]) == ("keep", True)
    assert (await lab.pool(0.2))["mar11-1"] == 99.0


async def test_a_repeated_tick_is_told_the_first_answer_whatever_happened(lab: Lab, process: Process) -> None:
    await open_tag(lab.client, policy=CERTAIN)
    experiments, e = await lab.begin()
    pool = ranks_at(process.lab.keys, "mar11", "H100", 0.4)
    await process.lab.command("ZADD", pool, *[word for n in range(9) for word in (f"{n}.0", f"other-{n}")])

    at_once = await asyncio.gather(*(ranked(e, (1.0, 0.2), 0.2, experiments) for _ in range(5)))
    of_another_lease = await ranked(e.model_copy(update={"fence": 99}), (50.0, 0.4), 0.4, experiments)
    first = await ranked(e, (0.0, 0.4), 0.4, experiments)
    again = await ranked(e, (50.0, 0.4), 0.4, experiments)

    assert (*at_once, of_another_lease, first, again) == (*["continue"] * 5, "lost", *["continue"] * 2)
    assert await lab.pool(0.2) == {"mar11-1": 1.0}
    assert len(await events_of(process, "run.ticked")) == 2
    assert not (await experiments.get(e.experiment_id)).stopping


async def test_ranks_that_no_run_stands_behind_are_a_violation(lab: Lab, process: Process) -> None:
    await open_tag(lab.client, policy=CERTAIN)
    await lab.run((1.0, 0.2), (1.0, 0.4))
    keys = process.lab.keys
    await process.lab.command("ZADD", ranks_at(keys, "mar11", "H100", 0.2), "0.1", "mar11-7")
    await process.lab.command("ZREM", ranks_at(keys, "mar11", "H100", 0.4), "mar11-1")

    assert await lab.audited() == [
        "mar11: the ranks at 0.2 of a run and the record of mar11-7 disagree",
        "mar11: the ranks at 0.4 of a run and the record of mar11-1 disagree",
    ]


async def told_of(lab: Lab, experiment_id: str) -> list[str | None]:
    """What `wait` and `get` say of a run that reports nothing."""
    waited = await asked(lab.client, f"/api/experiment/{experiment_id}/wait?until=finished")
    shown = await asked(lab.client, f"/api/experiment/{experiment_id}")
    return [waited["no_signal"], shown["no_signal"]]


async def test_a_run_that_should_have_reported_is_told_the_two_lines_that_it_lacks(lab: Lab) -> None:
    await open_tag(lab.client, policy=CERTAIN)
    await lab.run()
    await lab.run((1.0, 0.3))
    await tried(lab.client, 1.0)
    await open_tag(lab.client, "none", policy={"baseline_first": False})
    await lab.run(tag="none")

    assert await told_of(lab, "mar11-1") == [NO_SIGNAL, NO_SIGNAL]
    assert "from nightjar_report import report" in NO_SIGNAL
    assert "report(value, step / steps)" in NO_SIGNAL
    for reported_or_need_not in ("mar11-2", "mar11-3", "none-1"):
        assert await told_of(lab, reported_or_need_not) == [None, None]


EXTENDING = CERTAIN | {"budgets.base_s": 300, "budgets.extend_s": 60, "stopping.extend_at": 0.8}


async def five_runs(lab: Lab, **policy: Any) -> None:
    """A tag whose five runs have 2.0 to 2.4 at 80 % of their way, and 1.0 to 1.4 at the end."""
    await open_tag(lab.client, policy=EXTENDING | policy)
    for n in range(5):
        await lab.run((2 + n / 10, 0.8), prints=1 + n / 10)


async def test_the_best_run_is_given_more_time_once_and_judged_by_what_it_had_at_the_end_of_its_budget(
    lab: Lab,
) -> None:
    await five_runs(lab)

    best = await lab.run((1.9, 0.76), (1.8, 0.8), (1.7, 0.84), prints=0.9)
    assert lab.orders == [Extension(extra_s=60, budget_s=360)] * 3  # the same one, said again
    assert await events_of(lab.process, "run.extended") == []  # it never reported beyond its budget
    assert (best["status"], best["val_bpb"], best["reason"]) == ("keep", 0.9, None)

    ticks = ((1.8, 0.8), (1.3, 0.98), (1.2, 1.01), (1.1, 1.05), (0.6, 1.2), (0.5, 1.3))
    used = await lab.run(*ticks, prints=0.5)
    [event] = await events_of(lab.process, "run.extended")
    assert (event["subject"], event["progress"], event["extra_s"]) == ("mar11-7", 1.2, 60)
    assert (used["status"], used["val_bpb"]) == ("discard", 1.2)
    assert "given 60 s more" in used["reason"]
    assert "printed 0.5" in used["reason"]
    best = (await told(lab.client, "/api/experiment/best", tag="mar11"))["best"]
    assert best["experiment_id"] == "mar11-6"
    assert await lab.audited() == []


async def test_a_run_of_an_evaluator_command_is_never_extended(lab: Lab, process: Process) -> None:
    await five_runs(lab)
    await process.lab.command("HSET", process.lab.keys.tag("mar11"), "evaluator_command", "python prepare.py")
    experiments, e = await lab.begin()
    assert await ranked(e, (0.1, 0.8), 0.8, experiments) == "continue"


async def test_another_attempt_begins_without_the_extension_of_the_first(lab: Lab, process: Process) -> None:
    await five_runs(lab)
    experiments, e = await lab.begin()
    assert await ranked(e, (0.1, 0.8), 0.8, experiments) == Extension(60, 360)
    assert await ranked(e, (9.9, 0.8), 0.8, experiments) == Extension(60, 360)

    await add_gpu(lab.client, "host:gpu1")
    await expire(process.lab, "host:gpu0")
    await told(lab.client, "/api/pool/sweep")
    await told(lab.client, "/api/pool/dispatch")
    again = await begun(process, e.experiment_id)

    assert (again.attempt, again.extended_s, again.base_metric) == (2, None, None)
    assert await ranked(again, (9.9, 0.8), 0.8, experiments) == "stop"


async def test_an_extended_run_still_ends_with_its_tag_s_budget(lab: Lab, process: Process) -> None:
    await five_runs(lab)
    submitted = await told(lab.client, "/api/experiment/submit", **idea())
    await told(lab.client, "/api/tag/budget", tag="mar11", gpu_seconds=330)
    await told(lab.client, "/api/pool/dispatch")
    experiments, e = Experiments(process.lab), await begun(process, submitted["experiment_id"])
    assert await ranked(e, (0.1, 0.8), 0.8, experiments) == Extension(60, 360)

    async def after(seconds: float) -> str:
        """What the run is told so long after it began."""
        began = repr(await process.lab.now() - seconds)
        await process.lab.command("HSET", process.lab.keys.experiment(e.experiment_id), "started_at", began)
        return await experiments.renew(e.experiment_id, e.gpu_id or "", e.fence, 60)

    assert [await after(200), await after(350)] == ["continue", "stop"]


async def test_the_queue_leaves_a_run_the_time_it_may_be_given(lab: Lab, process: Process) -> None:
    await open_tag(lab.client, policy=EXTENDING)
    await lab.begin()

    with closing(broker(process.lab.url)) as connection:
        [job] = gpu_queue(process.lab.name, "host:gpu0", connection).jobs

    assert job.timeout is not None
    assert job.timeout > 660 + LONGEST_EXTENSION_S
