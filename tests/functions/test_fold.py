"""The derived state of a tag follows from its records, for any history."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import httpx
import pytest

from functions.fold import CONTRADICTED, ClassNoise, largest_gain, noise
from functions.kernel.process.lifecycle import Process
from functions.trust.rules.noise import Repeats, parsed
from state.derived import Derived, Field, rebuild, step
from state.ids import named_by
from state.records import Direction, Experiment
from state.snapshots import Snapshots
from tests.functions.conftest import GPUS, TagUnderTest
from tests.functions.sample import experiment
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm
from tests.labs import add_gpu, begun, curl, idea, open_tag, told

TAG = "mar11"
CODES = [f"aaaaaa{n:x}" for n in range(8)]
CLASSES = ["H100", "H100", "A100"]
GPU_CLASSES: dict[str, str] = dict(zip(GPUS, CLASSES, strict=True))
CATEGORIES = ["architecture", "optimizer"]


class History:
    """A tag in which everything happens that results can come to; a refusal changes nothing."""

    def __init__(
        self, tag: TagUnderTest, seed: str, direction: Direction, keep_rule: str, *, trains: bool
    ) -> None:
        self.tag, self.chance, self.snapshots = tag, random.Random(seed), Snapshots(tag.lab)
        self.direction: Direction = direction
        self.keep_rule, self.trains, self.retracts = keep_rule, trains, True
        self.names: list[str] = []

    async def ask(self, path: str, **body: Any) -> dict[str, Any]:
        response = await curl(self.tag.client, path, body)
        assert response.status_code < 500, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def some(self) -> str:
        return self.chance.choice(self.names) if self.names else f"{TAG}-1"

    def value(self) -> float:
        return self.chance.choice([1.0, 1.0, 0.99, self.chance.gauss(1.0, 0.02)])

    async def register(self) -> None:
        wish: dict[str, Any] = {}
        if self.chance.random() < 0.6:
            chosen = await self.ask("/api/trace/select", tag=TAG)
            wish = {"selection_id": chosen["selection_id"]} if "selection_id" in chosen else {}
        code, category = self.chance.choice(CODES), self.chance.choice(CATEGORIES)
        made = await self.ask("/api/experiment/register", **idea(commit_sha=code, category=category, **wish))
        self.names += [made["experiment_id"]] if "number" in made else []

    async def complete(self, name: str | None = None) -> None:
        gpu_class = {"gpu_class": self.chance.choice(CLASSES)}
        await self.ask(
            "/api/experiment/complete", experiment_id=name or self.some(), val_bpb=self.value(), **gpu_class
        )

    async def crash(self) -> None:
        kind = self.chance.choice(["oom", "timeout", "infra", "evaluator"])
        await self.ask("/api/experiment/crash", experiment_id=self.some(), error="boom", kind=kind)

    async def retest(self) -> None:
        again = await self.ask("/api/experiment/retest", experiment_id=self.some(), train=False)
        if "retest_id" in again:
            await self.complete(str(again["retest_id"]))

    async def train(self) -> None:
        """A worker of the lab trains what waits."""
        await self.ask("/api/pool/dispatch")
        for leased in await self.tag.experiments.by_number(TAG, "leased", 2):
            e = await begun(self.tag.process, leased.experiment_id)
            await self.tag.report(e, self.value(), GPU_CLASSES[e.gpu_id or ""])
            await self.tag.free(e)
            await self.judge(e.experiment_id)

    async def submit(self) -> None:
        code = self.chance.choice(CODES)
        made = await self.ask("/api/experiment/submit", **idea(commit_sha=code))
        self.names += [made["experiment_id"]] if "experiment_id" in made else []
        await self.train()

    async def judge(self, name: str | None = None) -> None:
        name = name or self.some()
        await self.ask("/api/experiment/judge-retests", tag=named_by(name)[1], experiment_ids=[name])

    async def stop(self) -> None:
        await self.ask("/api/experiment/stop", experiment_id=self.some())

    async def fall_silent(self) -> None:
        lab, name = self.tag.lab, self.some()
        if await lab.command("ZSCORE", lab.keys("open"), name) is not None:
            await lab.command("ZADD", lab.keys("open"), "1", name)
        await self.ask("/api/pool/sweep")

    async def retract(self, name: str | None = None) -> None:
        if self.retracts:
            await self.ask("/api/experiment/retract", experiment_id=name or self.some(), reason="a mistake")

    async def act(self) -> None:
        often = [self.register, self.complete, *([self.submit] if self.trains else [])]
        seldom = [self.crash, self.retest, self.stop, self.fall_silent, self.retract, self.judge]
        acts: list[Callable[[], Awaitable[None]]] = [*often, *often, *often, *seldom]
        await self.chance.choice(acts)()

    async def records(self) -> list[Experiment]:
        found = await self.snapshots.experiments(TAG)
        return [*found, *await self.snapshots.retests(found)]

    async def stored(self, rebuilt: Derived) -> Derived:
        """What stands in Redis, branches too."""
        found = await self.snapshots.derived(TAG, rebuilt)
        names = {key for key, _ in rebuilt.counts if key.startswith("trace:")}
        for key, fields in (await self.snapshots.hashes(names)).items():
            found.counts.update({(key, name): int(fields.get(name, 0)) for name in ("length", "kept")})
        return found


Kept = dict[str, tuple[int, float, dict[str, Repeats | None]]]
"""Degrees of freedom, squares and the runs of each code, by class of GPU."""


async def kept_noise(snapshots: Snapshots, keys: Iterable[str]) -> Kept:
    """The noise as it is stored."""
    found: Kept = {}
    for key, fields in (await snapshots.hashes(keys)).items():
        sums = int(fields.pop("df", 0)), float(fields.pop("squares", 0))
        found[key] = (*sums, {name: parsed(text) for name, text in fields.items()})
    return found


def in_sums(measured: Mapping[str, ClassNoise]) -> Kept:
    return {key: (of.sums.df, of.sums.squares, {**of.runs}) for key, of in measured.items()}


async def lived(tag: TagUnderTest, acts: int, **how: Any) -> History:
    """A tag with several branches and GPUs, in which this much was done."""
    history = History(tag, **how)
    traces = {"mode": "multi", "target_traces": 3, "max_parallel": 20, "max_inflight_per_trace": 3}
    policy = {"baseline_first": history.trains, "keep_rule": history.keep_rule, "traces": traces}
    metric = {"name": "loss", "direction": history.direction}
    await open_tag(tag.client, base_commit=CODES[0], metric=metric, policy=policy)
    for gpu, gpu_class in GPU_CLASSES.items():
        await add_gpu(tag.client, gpu, gpu_name=gpu_class)
    for _ in range(acts):
        await history.act()
    return history


def plain(state: Derived) -> tuple[dict[Field, int], dict[Field, float]]:
    """Counts and members that are there."""
    counts = {field: n for field, n in state.counts.items() if n}
    return counts, {place: score for place, score in state.scores.items() if score is not None}


HISTORIES = [
    {
        "seed": f"{direction} {keep_rule} {trains}",
        "direction": direction,
        "keep_rule": keep_rule,
        "trains": trains,
    }
    for direction in ("minimize", "maximize")
    for keep_rule, trains in (("strict" if direction == "minimize" else "confirmed", False), ("auto", True))
]


@pytest.mark.parametrize("how", HISTORIES, ids=lambda how: str(how["seed"]))
async def test_what_is_stored_is_what_the_records_add_up_to_in_any_order(
    tag: TagUnderTest, how: dict[str, Any]
) -> None:
    history = await lived(tag, 0, **how)
    known, running = dict[str, Experiment](), Derived()
    for nth in range(12):
        history.retracts = nth > 8
        for _ in range(10):
            await history.act()
        records = await history.records()
        if not history.retracts:  # the noise is bit for bit that of the runs in the order in which they ended
            measured = noise(records)
            assert await kept_noise(history.snapshots, measured) == in_sums(measured)
            repeats = sum(of.sums.df for of in measured.values())
        rebuilt = rebuild(records, history.direction)

        assert plain(await history.stored(rebuilt)) == plain(rebuilt)
        random.Random(nth).shuffle(records)
        assert plain(rebuild(records, history.direction)) == plain(rebuilt)
        for record in records:
            step(running, record, history.direction, known.get(record.experiment_id))
            known[record.experiment_id] = record
        assert plain(running) == plain(rebuilt)
    assert repeats


@pytest.mark.parametrize("how", HISTORIES, ids=lambda how: str(how["seed"]))
async def test_a_result_that_is_taken_back_leaves_what_the_others_add_up_to(
    tag: TagUnderTest, how: dict[str, Any]
) -> None:
    history = await lived(tag, 70, **how)
    taken = 0
    for name in history.chance.sample(history.names, 12):
        before = {e.experiment_id: e for e in await history.records()}
        await history.retract(name)
        after = {e.experiment_id: e for e in await history.records()}
        if before[name].status not in ("keep", "discard") or after[name].status != "retracted":
            continue
        taken += 1
        without = rebuild((e for n, e in after.items() if n != name), history.direction)
        step(without, after[name], history.direction)
        assert plain(await history.stored(without)) == plain(without)
        own = {place for place in without.scores if place[1] == name}
        assert {key.split(":")[0] for key, _ in own} == {
            "status"
        }  # it is listed as retracted, and nowhere else
        left = noise([e for n, e in after.items() if name not in (n, e.retest_of)])
        for key, (df, squares, runs) in (await kept_noise(history.snapshots, left)).items():
            assert runs.keys() == left[key].runs.keys()
            assert df == sum(r.df for r in runs.values() if r)
            assert squares == pytest.approx(sum(r.pooled for r in runs.values() if r), abs=1e-12)
    assert taken


async def some_runs(swarm: Swarm, chance: random.Random) -> None:
    """Two workers run one of a few configs each, their own or those that they are given."""
    for worker in ("w1", "w2"):
        value = chance.choice([0.99, 0.98, chance.gauss(0.98, 0.01)])
        run = await swarm.run_of(worker, value, LR=chance.choice([0.01, 0.02]), DEPTH=1, OPTIMIZER="sgd")
        if chance.random() < 0.3:
            await curl(swarm.http, "/api/experiment/retest", {"experiment_id": run})
        given = (await swarm.next(worker))["run_id"]
        match chance.randrange(5):
            case 0:
                await swarm.result(worker, given, None, error="boom")
            case 1:
                await swarm.silence(given)
                await swarm.swept()
            case 2:
                await curl(swarm.http, "/api/experiment/stop", {"experiment_id": given})
            case _:
                await swarm.result(worker, given, value)


@pytest.mark.parametrize("compare_by", ["delta", "value"])
@pytest.mark.parametrize("seed", range(3))
async def test_a_swarm_is_what_its_records_add_up_to(
    client: httpx.AsyncClient, process: Process, seed: int, compare_by: str
) -> None:
    await told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    swarm, chance, snapshots = Swarm(client, process), random.Random(seed), Snapshots(process.lab)
    await swarm.policy(compare_by=compare_by)
    for nth in range(6):
        await some_runs(swarm, chance)
        found = await snapshots.experiments("swarm")
        if nth > 2:
            name = chance.choice([e for e in found if e.status in ("keep", "discard")]).experiment_id
            await told(client, "/api/experiment/retract", experiment_id=name, reason="a mistake")
            found = await snapshots.experiments("swarm")
        records = [*found, *await snapshots.retests(found)]
        rebuilt, measured = rebuild(records, "minimize"), noise(records)

        assert plain(await snapshots.derived("swarm", rebuilt)) == plain(rebuilt)
        if nth <= 2:
            assert await kept_noise(snapshots, measured) == in_sums(measured)
    assert await swarm.audited() == []


@pytest.mark.parametrize(
    ("fields", "before", "largest"),
    [
        ({}, 0.1, 0.5),
        ({}, 0.6, 0.6),
        ({"status": "discard"}, 0.1, 0.1),
        ({"trust": "provisional"}, 0.1, 0.1),
        ({"reason": CONTRADICTED}, 0.1, 0.1),
        ({"best_key": "another class of GPU"}, 0.1, 0.1),
        ({"improved": False}, 0.1, 0.1),  # it is kept on its branch alone
        ({}, 0.09, 0.09),  # more than five times as much is not plausible
        ({"trust": "confirmed"}, 0.09, 0.5),
    ],
)
def test_the_largest_gain_is_that_of_a_sure_keep_of_the_tag_s_own_best(
    fields: dict[str, Any], before: float, largest: float
) -> None:
    keep = experiment(**{"status": "keep", "delta": 0.5, "improved": True, **fields})

    assert largest_gain(before, 10, keep) == largest


@pytest.mark.parametrize(
    ("fields", "near"),
    [({}, True), ({"status": "keep"}, False), ({"best_key": "k"}, False), ({"repeats_best": True}, False)],
)
def test_a_near_miss_is_a_discard_beside_the_tag_s_own_best(fields: dict[str, Any], near: bool) -> None:
    e = experiment(**{"status": "discard", "val_bpb": 1.0, **fields})
    assert bool(rebuild([e], "minimize").members(f"near_misses:{e.tag}")) == near
