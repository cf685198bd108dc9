"""How often a call asks Redis, one question after the other: ceilings that only go down."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.table import table
from state.embedded import EmbeddedRedis
from state.events import CATALOGUE
from state.keys import FAMILIES
from state.presence import Presence
from state.records import Distillation
from state.settings import Settings
from state.trust import Distillations
from tests.labs import begun, dump, idea
from tests.trips import Trips, counted

PLAIN, FOREST, SURE = "mar11", "forest", "sure"
"""Tags: without traces, with traces, and with a known noise under the rule `confirmed`."""
MULTI = {"traces.mode": "multi", "traces.target_traces": 2, "traces.max_parallel": 9}
GPU = {"gpu_index": 0, "gpu_name": "H100", "vram_mb": 80_000.0}


USUAL = {True: (2, 1), False: (2, 0)}
"""Round trips of a call that only read, and that write, by whether its function writes."""
MORE: dict[str, tuple[int, int]] = {
    "pool::dispatch": (2, 3),
    "pool::next": (3, 0),
    "gpu::begin": (3, 1),
    "gpu::built": (3, 1),
    "trace::audit": (8, 0),
    "experiment::retract": (6, 1),
    "experiment::judge_retests": (3, 0),
    "trust::certify": (12, 4),
    "trust::follow_certificates": (9, 0),
    "trust::transfer": (4, 0),
    "swarm::register": (3, 1),
    "swarm::register, again": (3, 1),
    "swarm::next_config, in another population": (3, 1),
    "swarm::result": (3, 1),
    "run::stats": (3, 0),
    "swarm::leaderboard": (3, 0),
    "program::write": (3, 1),
    "program::diff": (3, 0),
    "tag::pause_all": (20, 20),
    "tag::unpause_all": (20, 20),
    "lab::archive": (4, 0),
    "lab::audit": (100, 0),
    "event::redrive": (4, 1),
    "event::discard": (3, 1),
    "event::trim": (1, 2),
    "token::enroll": (3, 2),
    "token::list": (4, 0),
    "token::revoke": (3, 1),
}
"""Calls that take more. Lower a number where you save one.

Some of them work through all that there is, step by step. Of gpu::train only its acceptance is counted: what a worker
does then is made of other calls.
"""


@dataclass
class Counter:
    """Calls functions, and counts the round trips of those that are paid for."""

    process: Process
    trips: Trips
    found: dict[str, tuple[int, int]] = field(default_factory=dict)

    async def call(self, name: str, /, **body: Any) -> dict[str, Any]:
        return (await self.process.invoker.call(name, body, self.process.invoker.system("test"))).model_dump()

    async def paid(self, label: str, bearer: str | None = None, /, **body: Any) -> dict[str, Any]:
        """The answer of the function that the label begins with; `bearer`: the token that it is called with."""
        name = label.partition(",")[0]
        call = self.process.invoker.system("test")
        if bearer is not None:
            call = call._replace(proof=(await self.process.tokens.recognise(bearer))[1])
        self.trips.begin()
        answer = await self.process.invoker.call(name, body, call)
        self.found[label] = (self.trips.reads, self.trips.moves)
        return answer.model_dump()

    async def registered(self, tag: str = PLAIN, **changes: Any) -> str:
        return str((await self.call("experiment::register", **idea(tag, **changes)))["experiment_id"])

    async def selected(self) -> str:
        return str((await self.call("trace::select", tag=FOREST))["selection_id"])


async def the_day(a: Counter) -> None:
    """Every function once, and those that decide much once in each kind of tag."""
    await agents(a)
    await workers(a)
    await branches(a)
    await repeats(a)
    await certificates(a)
    await readers(a)
    await operators(a)
    await organisers(a)
    await bearers(a)
    await baselines(a)


async def agents(a: Counter) -> None:
    await a.paid("experiment::setup", tag=PLAIN, base_commit="abc1234")
    for value in (1.0, 0.99, 1.2, 0.9905, 0.98):
        await a.call("experiment::complete", experiment_id=await a.registered(diff="+x\n"), val_bpb=value)
    first = await a.paid("experiment::register", **idea(PLAIN, diff="+y\n", parent_id=f"{PLAIN}-1"))
    await a.paid("experiment::complete", experiment_id=first["experiment_id"], val_bpb=1.1)
    await a.paid("experiment::complete, again", experiment_id=first["experiment_id"], val_bpb=1.1)
    await a.paid("experiment::complete, the best", experiment_id=await a.registered(), val_bpb=0.97)
    await a.paid("experiment::crash", experiment_id=await a.registered(), error="boom")
    await a.paid("experiment::stop", experiment_id=await a.registered())
    await a.paid("search::adapt", tag=PLAIN)
    await a.paid("search::suggest_direction", tag=PLAIN)
    await a.paid("report::brief", tag=PLAIN)


async def remote(a: Counter) -> None:
    await a.call("pool::register_gpu", gpu_id="far", **GPU, transport="http")
    await a.call("experiment::submit", **idea(PLAIN, diff="+far\n"))
    await a.call("pool::dispatch")
    work = (await a.paid("pool::next", gpu_id="far", timeout=0))["work"]
    who = {name: work[name] for name in ("experiment_id", "attempt", "fence")}
    await a.paid("gpu::begin", **who, runner="h:1:1")
    await a.paid("gpu::built", **who, tree_id="far")
    await a.paid("gpu::renew", **who, metric=1.0, progress=0.5)
    await a.paid("gpu::get", gpu_id="far")
    await a.paid("gpu::stopped", **who)
    await a.call("pool::release", gpu_id="far", proven=True)
    await a.paid("pool::leave", gpu_id="far", ended=True)


async def baselines(a: Counter) -> None:
    await a.call("experiment::setup", tag="new", base_commit="abc1234")
    await a.paid("experiment::baseline", tag="new")


async def workers(a: Counter) -> None:
    await a.paid("pool::register_gpu", gpu_id="g0", **GPU)
    submitted = await a.paid("experiment::submit", **idea(PLAIN, diff="+z\n"))
    await a.paid("invocation::get", invocation_id=submitted["invocation_id"])
    await a.paid("experiment::wait", experiment_id=submitted["experiment_id"], timeout=0)
    await a.call("pool::dispatch")  # the first job of all has RQ load its scripts
    await a.call("pool::give_back", gpu_id="g0", fence=1, reason="to be lent again")
    await a.paid("pool::dispatch")
    e = await begun(a.process, submitted["experiment_id"])
    who = {"experiment_id": e.experiment_id, "attempt": e.attempt, "fence": e.fence}
    await a.paid("pool::heartbeat", gpu_id="g0", fence=e.fence, health={"temperature_c": 60.0})
    await a.paid("gpu::health", gpu_id="g0")
    await a.paid("gpu::history", gpu_id="g0")
    await a.paid("experiment::complete, of a worker", **who, val_bpb=1.1, gpu_class="H100")
    await a.paid("pool::release", gpu_id="g0", experiment_id=e.experiment_id, fence=e.fence)
    await a.paid("gpu::train", experiment_id=await a.registered())
    await a.paid("pool::dispatch, nothing waits")
    lease = (await a.call("pool::list"))["workers"][0]
    await a.paid("pool::give_back", gpu_id="g0", fence=lease["fence"], reason="it is hot")
    await a.paid("pool::drain", gpu_id="g0")
    await a.paid("pool::register_gpu, again", gpu_id="g0", **GPU)
    await a.paid("pool::deregister", gpu_id="g0")
    await remote(a)
    await a.call("pool::register_gpu", gpu_id="g1", **GPU)
    own = await a.registered()
    await a.paid("pool::acquire", experiment_id=own)
    await a.paid("experiment::stop, of a run", experiment_id=own)
    await a.paid("pool::sweep")
    await a.paid("pool::probe", experiment_id=own, gpu_id="g1")


async def branches(a: Counter) -> None:
    await a.call("experiment::setup", tag=FOREST, policy=MULTI, base_commit="abc1234")
    for value in (1.0, 1.1):
        name = await a.registered(FOREST, selection_id=await a.selected())
        await a.call("experiment::complete", experiment_id=name, val_bpb=value)
    chosen = await a.paid("trace::select", tag=FOREST)
    chosen = {"selection_id": chosen["selection_id"]}
    await a.paid("trace::renew", **chosen)
    await a.paid("trace::context", tag=FOREST, **chosen)
    await a.paid("search::suggest_direction, of a selection", tag=FOREST, **chosen)
    name = (await a.paid("experiment::register, of a selection", **idea(FOREST, **chosen)))["experiment_id"]
    await a.paid("experiment::complete, in a branch", experiment_id=name, val_bpb=0.99)
    await a.paid("experiment::register, without a selection", **idea(FOREST))
    chosen = {"selection_id": await a.selected()}
    await a.paid("experiment::submit, of a selection", **idea(FOREST, **chosen))
    name = await a.registered(FOREST, selection_id=await a.selected())
    await a.paid("experiment::crash, in a branch", experiment_id=name, error="boom")
    await a.paid("report::brief, with branches", tag=FOREST)
    merged = await a.paid("trace::merge", tag=FOREST, sources=[f"{FOREST}-t1", f"{FOREST}-t2"])
    await a.paid("trace::release", selection_id=merged["selection_id"])
    await a.paid("trace::list", tag=FOREST)
    await a.paid("trace::close", tag=FOREST, trace_id=f"{FOREST}-t2")
    await a.paid("trace::reopen", tag=FOREST, trace_id=f"{FOREST}-t2")
    await a.paid("trace::configure", tag=FOREST, target_traces=3)
    await a.paid("trace::sweep")
    await a.paid("trace::audit", tag=FOREST)


async def repeats(a: Counter) -> None:
    await a.call("experiment::setup", tag=SURE, policy={"keep_rule": "confirmed"}, base_commit="abc1234")
    first = await a.registered(SURE)
    await a.call("experiment::complete", experiment_id=first, val_bpb=1.0)
    again = await a.paid("experiment::retest", experiment_id=first, train=False)
    await a.paid("experiment::complete, of a retest", experiment_id=again["retest_id"], val_bpb=1.0006)
    again = await a.call("experiment::retest", experiment_id=first, train=False)
    await a.call("experiment::complete", experiment_id=again["retest_id"], val_bpb=0.9994)
    name = await a.registered(SURE)
    await a.paid("experiment::complete, known noise", experiment_id=name, val_bpb=1.1)
    name = await a.registered(SURE)
    await a.paid("experiment::complete, best by known noise", experiment_id=name, val_bpb=0.9999)
    await a.paid("experiment::judge_retests", tag=SURE, experiment_ids=[name])


async def certificates(a: Counter) -> None:
    names = [await a.registered(SURE), await a.registered(SURE)]
    for name, value in zip(names, (1.0, 0.9), strict=True):
        await a.call("experiment::complete", experiment_id=name, val_bpb=value, gpu_class="H100")
    await a.paid("trust::certify", experiment_id=names[1], against=names[0])
    await a.paid("trust::follow_certificates", tag=SURE)
    await a.paid("trust::shrinkage", tag=SURE)
    best = (await a.call("report::night", tag=SURE))["best_experiment_id"]
    one = {"tag": SURE, "into": "d", "best": best, "direction": "minimize", "most_runs": 1, "run_s": 1.0}
    await Distillations(a.process.lab).put(None, Distillation.model_validate(one | {"changes": ()}))
    await a.paid("trust::distil", tag=SURE)
    await a.paid("trust::distilled", tag=SURE)
    await a.paid("trust::follow_distilling", tag=PLAIN)
    lab, records = a.process.lab, [a.process.lab.keys.experiment(name) for name in names]
    before = [await lab.command("HGETALL", record) for record in records]
    for record in records:  # as if a worker had trained it
        await lab.command("HSET", record, "attempt", "1", "budget_s", "300.0")
    await a.paid("trust::transfer", experiment_id=names[1], against=names[0])
    await a.paid("trust::follow_transfers", tag=SURE)
    for record, fields in zip(records, before, strict=True):
        await lab.command("DEL", record)
        await lab.command("HSET", record, *(word for field in fields.items() for word in field))


async def readers(a: Counter) -> None:
    await a.paid("experiment::best, known noise", tag=SURE)
    for name in ("experiment::get", "experiment::log"):
        await a.paid(name, experiment_id=f"{PLAIN}-2")
    await a.paid("experiment::wait, of a finished experiment", experiment_id=f"{PLAIN}-2")
    await a.paid("report::diff", experiment_a=f"{PLAIN}-1", experiment_b=f"{PLAIN}-2")
    await a.paid("experiment::history", tag=PLAIN, limit=50)
    await a.paid("report::progress", tag=PLAIN, format="svg")
    for verb in (
        "experiment::best",
        "experiment::near_misses",
        "search::policy",
        "search::strategy",
        "event::list",
    ):
        await a.paid(verb, tag=PLAIN)
    for page in ("night", "summary", "tsv"):
        await a.paid(f"report::{page}", tag=PLAIN)
    for page in ("agents", "runs"):
        await a.paid(f"report::{page}", tag=SURE)
    await a.paid("agent::announce", tag=PLAIN, agent="ada", state="working")
    await a.paid("pool::announce", process="keeper@h:1")
    for lists in (
        "report::tags",
        "pool::list",
        "lab::status",
        "function::calls",
        "function::list",
        "cron::list",
    ):
        await a.paid(lists)


async def operators(a: Counter) -> None:
    await a.paid("search::set_policy", tag=PLAIN, policy={"crash_limit": 9})
    await a.paid("search::set_strategy", tag=PLAIN, mode="exploit", reason="enough was explored")
    await a.paid("experiment::resume", tag=PLAIN)
    await a.paid("experiment::retract", experiment_id=f"{SURE}-1", reason="wrong data")
    for verb in ("pause", "unpause"):
        await a.paid(f"tag::{verb}", tag=PLAIN)
    for name in ("tag::pause_all", "tag::unpause_all", "lab::archive", "lab::audit"):
        await a.paid(name)
    await a.paid("tag::budget", tag=PLAIN, runs=1000)
    for verb in ("pause", "resume", "run"):
        await a.paid(f"cron::{verb}", function="pool::sweep")
    added = await a.paid("webhook::add", url="http://127.0.0.1:9/x")
    await a.paid("webhook::list")
    for verb in ("test", "remove"):
        await a.paid(f"webhook::{verb}", id=added["id"])
    await buried(a.process)
    await a.paid("event::dead")
    await a.paid("event::redrive", all=True)
    await buried(a.process)
    await a.paid("event::discard", all=True)
    await a.paid("event::trim")


async def organisers(a: Counter) -> None:
    await a.paid("dimension::define", tag="new-swarm", profile="mnist")
    await a.paid("dimension::define, nothing new", tag="new-swarm", profile="mnist")
    held = {"tag": "new-swarm", "name": "LR", "reason": "no value differs"}
    await a.paid("dimension::freeze", **held, value=0.001)
    await a.paid("dimension::unfreeze", **held)
    await a.paid("dimension::list", tag="new-swarm")
    await proposers(a)
    proposed = await a.paid("hypothesis::bootstrap", tag="new-swarm")
    await a.paid("hypothesis::bootstrap, nothing new", tag="new-swarm")
    await a.paid("hypothesis::list", tag="new-swarm")
    await a.paid("hypothesis::get", tag="new-swarm", hypothesis_id=proposed["added"][0])
    await a.paid("hypothesis::history", tag="new-swarm", hypothesis_id=proposed["added"][0])
    await a.paid("hypothesis::reopen", tag="new-swarm", name="LR")
    claim = {"tag": "new-swarm", "proposal": {"statement": "lower LR values train better"}}
    await a.paid("hypothesis::gate", **claim)
    await a.paid("hypothesis::propose", **claim)
    await a.paid("hypothesis::propose, refused", **claim)
    await a.paid("dimension::freeze_irrelevant", tag="new-swarm", hypothesis_id=proposed["added"][0])
    joins = {"worker_id": "w1", "gpu_type": "H100", "baseline_bpb": 1.0, "tag": "new-swarm"}
    await a.paid("swarm::register", **joins)
    await a.paid("swarm::register, again", **joins)
    run = await a.paid("swarm::next_config, in another population", worker_id="w1")
    await a.paid("swarm::next_config, again", worker_id="w1")
    await a.paid("run::tick", id=run["run_id"], p=0.13, m=1.0)
    await a.paid("run::tick, at a bucket", id=run["run_id"], p=0.2, m=1.0)
    ran = {"worker_id": "w1", "duration_seconds": 1.0}
    await a.paid("swarm::result", **ran, exp_id=run["run_id"], val_bpb=0.9)
    await a.paid("swarm::result, again", **ran, exp_id=run["run_id"], val_bpb=0.9)
    await a.paid("swarm::next_config", worker_id="w1")
    await a.paid("hypothesis::learn", tag="new-swarm", experiment_ids=[run["run_id"]])
    await a.paid("hypothesis::learn, again", tag="new-swarm", experiment_ids=[run["run_id"]])
    await a.paid("swarm::refill", tag="new-swarm")
    await a.paid("dimension::measure", tag="new-swarm")
    await a.paid("swarm::sync", worker_id="w1")
    await a.paid("swarm::preview", worker_id="w1")
    extra = await a.paid("run::start", worker_id="w1", config_delta={"LR": 0.001})
    for read in ("run::active", "run::stats"):
        await a.paid(read, tag="new-swarm")
    for read in ("leaderboard", "populations", "health", "workers"):
        await a.paid(f"swarm::{read}", tag="new-swarm")
    await a.paid("run::stop", run_id=extra["run_id"])
    await a.paid("swarm::sweep")
    await a.paid("journal::checkpoint", tag="new-swarm")
    await a.paid("journal::checkpoint, nothing new", tag="new-swarm")
    await a.paid("journal::list")
    await a.paid("program::refresh")
    for told in ("hypothesis::draft", "hypothesis::tell", "dimension::draft", "program::refresh, of a tag"):
        await a.paid(told, tag="new-swarm")
    for verb in ("write", "list", "diff"):
        await a.paid(f"program::{verb}", tag="new-swarm")
    for quiet in ("program::current", "journal::read"):
        await a.paid(quiet)
    for quiet in ("graph", "graph_summary", "shadow_scorecards"):
        await a.paid(f"hypothesis::{quiet}")
    for quiet in ("status", "spec", "spec_payload", "flush_token", "flush", "follow"):
        await a.paid(f"pipeline::{quiet}")
    await a.paid("pipeline::draft", tag="new-swarm", number=1)
    await a.paid("pipeline::adopt", tag="new-swarm", spec_id="new-swarm-spec-1")


async def proposers(a: Counter) -> None:
    warmup = {"name": "WARMUP", "dtype": "float", "min": 0.0, "max": 0.5, "default_value": 0.0}
    await a.paid("dimension::propose", tag="new-swarm", **warmup)
    await a.paid("dimension::follow_trials", tag="new-swarm")
    await a.paid("dimension::follow_trials, nothing new", tag="new-swarm")
    await a.paid("dimension::proposals", tag="new-swarm")
    key = a.process.lab.keys("proposed_dimensions", "new-swarm")
    [(name, text)] = (await a.process.lab.hash(key)).items()
    tried = json.dumps(json.loads(text) | {"state": "on_trial"})
    await a.process.lab.command("HSET", key, name, tried)  # of a dimension that is gone
    await a.paid("dimension::follow_trials, the end of a trial", tag="new-swarm")
    await a.paid("dimension::clear_proposals", tag="new-swarm")
    await a.paid("dimension::clear_proposals, nothing there", tag="new-swarm")


async def buried(process: Process) -> None:
    """One dead letter of a function that is served."""
    await process.stream.redriven("search::adapt", "test").serve()
    events = process.stream.events("search::adapt", "test")
    await events.serve()
    await process.lab.command("XGROUP", "SETID", events.stream, events.group, "0")
    [event] = await events.read(1, 1.0)
    await events.bury(event, "boom", 8)


async def bearers(a: Counter) -> None:
    root = (await a.paid("token::issue", name="root", role="operator"))["token"]
    swarm = await a.call("token::issue", name="swarm", role="worker", kind="enroll", uses=9)
    enrolled = await a.paid("token::enroll", enroll_token=swarm["token"], name="ann")
    await a.paid("token::whoami", root)
    await a.paid("token::list", root)
    await a.paid("token::rotate", root, id=enrolled["id"])
    await a.paid("token::revoke", root, id=enrolled["id"])
    await a.paid("token::sign_in", root)
    await a.paid("event::ticket", root)


announce = Presence.announce


async def silent(presence: Presence, name: str, facts: Mapping[str, Any]) -> None:
    """Signs of life of the process are not counted."""
    if facts["kind"] not in ("agent", "keeper"):
        await asyncio.Event().wait()
    await announce(presence, name, facts)


def family(key: str) -> str:
    """The family of a key, as `state/keys.py` has it."""
    name = key.partition("}:")[2]
    shapes = sorted((f.pattern for f in FAMILIES), key=lambda shape: -len(re.sub("<[^>]*>", "", shape)))
    found = next((s for s in shapes if re.fullmatch(re.sub("<[^>]*>", ".+", s), name)), None)
    assert found is not None, f"{key} is of no family of state/keys.py"
    return found


UNSEEN = {
    "agent": "limited",
    "certificate": "decided",
    "dimension": "adopted measured promoted reverted",
    "distil": "decided",
    "experiment": "confirmed contended demoted lost promoted refuted revalued unconfirmed",
    "gpu": "unhealthy",
    "graph": "told",
    "hypothesis": "believed settled",
    "journal": "due",
    "lab": "audit_failed",
    "pipeline": "confirmed drafting due flushed ready",
    "program": "asked",
    "run": "extended reported_late stopping",
    "selection": "expired",
    "tag": "budget_warning patches_archived",
    "transfer": "begun decided",
    "webhook": "disabled",
}
"""Events of the catalogue, by subject, that other tests bring."""


async def lived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Counter]) -> Counter:
    """The day, called on a Redis of its own: lab::audit looks through all keys."""
    monkeypatch.setattr(Presence, "announce", silent)
    with EmbeddedRedis.start(Settings.model_validate({"data": tmp_path / "redis"})) as server:
        async with counted(server.url) as trips:
            door = Settings.model_validate(
                {"redis_url": trips.url, "data": tmp_path / "data", "webhook_private": True}
            )
            async with opened("web", door) as process:
                counter = kind(process, trips)
                await the_day(counter)
                for key in await dump(process.lab, without=frozenset()):
                    assert family(key)
                types = {event.type for event in await process.stream.last(100_000)}
                assert types <= CATALOGUE.keys()
                others = {f"{of}.{what}" for of, whats in UNSEEN.items() for what in whats.split()}
                assert CATALOGUE.keys() - types <= others, "nothing of the day emits them"
    return counter


@pytest.fixture
async def day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """Reads and moves of every call of the day."""
    return (await lived(tmp_path, monkeypatch, Counter)).found


async def test_no_call_takes_more_round_trips_but_those_named(day: dict[str, tuple[int, int]]) -> None:
    wrong = []
    for label, found in day.items():
        most = MORE.get(label, USUAL[table()[label.partition(",")[0]].writes])
        if any(had > may for had, may in zip(found, most, strict=True)):
            wrong.append(f"{label}: found {found}, at most {most}")
    assert not wrong, "\n".join(wrong)
    assert day.keys() >= MORE.keys()
    assert {label.partition(",")[0] for label in day} == set(table()), "a function is not called"
