"""The function table and the scripts: what is declared is what is there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from pydantic import BaseModel

import state
from functions.kernel.contract import (
    BadTable,
    Call,
    Cron,
    Every,
    Function,
    Http,
    On,
    Request,
    Response,
    function,
)
from functions.kernel.invoke import Invoker
from functions.kernel.process.lifecycle import Process
from functions.kernel.rules.access import Caller
from functions.kernel.table import HOMES, check, table
from state.dimensions import Replacing
from state.errors import Forbidden, Invalid
from state.events import CATALOGUE
from state.experiments import Experiments
from state.ids import named_by
from state.keys import FAMILIES, Keys
from state.moves import moves
from state.program_facts import StepKind
from state.records import GpuStatus, Role
from state.webhooks import Webhooks, new_secret
from tests.labs import (
    add_gpu,
    claimed,
    crashed,
    dump,
    expire,
    idea,
    open_tag,
    registered,
    running,
    silence,
    told,
    tried,
)

STATE = Path(state.__file__).parent
FUNCTIONS = STATE.parent / "functions"
LUA = Path(state.__file__).parent / "lua"


class Ask(Request):
    name: str = "x"


class Told(Response):
    name: str


class Telephone:
    """Something that no process provides."""


@dataclass(frozen=True)
class Desk:
    """A bundle."""

    telephone: Telephone


@function("noun::verb", role="agent")
async def verb(request: Ask) -> Told:
    """Answer."""
    return Told(name=request.name)


def declared(**changes: Any) -> Function[Any, Any]:
    return Function(**{**vars(verb), **changes})


# -- declarations


def test_the_table_is_right_as_it_stands() -> None:
    found = table()
    check(found)
    assert list(found) == sorted(found)
    assert {"experiment::complete", "pool::acquire", "gpu::train", "function::list"} <= set(found)
    assert all(f.description for f in found.values())


def test_a_function_gets_a_route_from_its_name() -> None:
    assert [str(door) for door in verb.doors] == ["POST /api/noun/verb"]
    assert verb.description == "Answer."


def test_a_name_that_does_not_match_its_file_is_refused() -> None:
    with pytest.raises(BadTable, match=r"'noun::verb' is declared in the file of 'noun::other'"):
        check({"noun::other": verb})


def test_every_file_that_declares_functions_is_a_home_of_its_nouns() -> None:
    declaring = {
        (".".join(file.relative_to(FUNCTIONS).with_suffix("").parts), noun)
        for file in FUNCTIONS.rglob("*.py")
        for noun in re.findall(r'^@function\(\s*"(\w+)::', file.read_text(), re.MULTILINE)
    }
    assert declaring == {(home, noun) for noun, homes in HOMES.items() for home in homes}


@pytest.mark.parametrize(
    ("triggers", "problem"),
    [
        ((On("experiment.celebrated"),), r"experiment\.celebrated"),
        ((Every(1), Cron("* * * * *")), "two triggers of the clock"),
        ((Every(0),), "an interval of 0 s is too short"),
        ((Every(float("nan")),), "NaN"),
        ((Every("sleep_s"),), "no setting 'sleep_s'"),
        ((Every(5, jitter_s=5),), "a jitter of 5 s is no part of an interval of 5 s"),
        ((Every(5, jitter_s=-1),), "a jitter of -1 s is no part of an interval of 5 s"),
        ((Cron("* * *"),), "5 or 6"),
        ((Cron("0 0 30 2 *"),), "never comes"),
        ((Cron("0 25 * * *"),), "higher than the maximum"),
        ((Cron("0 3 * * *", "Middle/Earth"),), "no time zone"),
    ],
)
def test_a_trigger_that_cannot_work_is_refused(triggers: tuple[Every | Cron | On, ...], problem: str) -> None:
    with pytest.raises(BadTable, match=problem):
        check({"noun::verb": declared(triggers=triggers)})
    with pytest.raises(BadTable, match="names no role"):
        check({"noun::verb": declared(roles=())})


def test_every_model_of_a_request_or_answer_has_a_name_of_its_own() -> None:
    models: set[type[BaseModel]] = set()
    for found in table().values():
        models |= {*within(found.request), *within(found.response)}
        models |= {*within(found.accept.response)} if found.accept else set()
    named = Counter(model.__name__ for model in models)
    assert [name for name, count in named.items() if count > 1] == []


def within(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation names, and those of their fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from within(field.annotation)
    for part in get_args(annotation):
        yield from within(part)


def test_a_get_that_writes_is_refused_unless_only_workers_send_it() -> None:
    fetched = (Http("GET", "/api/noun/verb"),)
    for roles in (("agent",), ("operator",), ("agent", "worker"), ("anyone",)):
        with pytest.raises(BadTable, match=r"'noun::verb' writes, but GET /api/noun/verb"):
            check({"noun::verb": declared(triggers=fetched, writes=True, roles=roles)})
    check({"noun::verb": declared(triggers=fetched, writes=True, roles=("worker",))})
    check({"noun::verb": declared(triggers=fetched, writes=False)})


# -- the invoker


def test_a_dependency_that_nobody_provides_is_refused_at_the_start() -> None:
    with pytest.raises(BadTable, match="Telephone"):
        Invoker({"noun::verb": declared(needs={"telephone": Telephone})}, [])


async def test_a_bundle_is_made_of_what_is_provided() -> None:
    async def calling(request: Ask, desk: Desk) -> Told:
        return Told(name=type(desk.telephone).__name__)

    invoker = Invoker({"noun::verb": declared(handler=calling, needs={"desk": Desk})}, [Telephone()])
    assert await invoker.call("noun::verb", {"name": "x"}, invoker.system("test")) == Told(name="Telephone")
    with pytest.raises(BadTable, match=r"desk\.telephone: Telephone, which nobody provides"):
        Invoker({"noun::verb": declared(needs={"desk": Desk})}, [])


async def test_a_caller_of_another_role_is_refused() -> None:
    invoker = Invoker({"noun::verb": verb}, [])

    strangers: tuple[Role, ...] = ("viewer", "worker")
    friends: tuple[Role, ...] = ("agent", "operator")
    for role in strangers:
        with pytest.raises(Forbidden, match="agent"):
            await invoker.call("noun::verb", {}, Call(Caller("test", role), invoker=invoker))
    for role in friends:
        answer = await invoker.call("noun::verb", {"name": "y"}, Call(Caller("test", role), invoker=invoker))
        assert answer == Told(name="y")


async def test_a_request_that_does_not_validate_names_its_fields_without_their_values() -> None:
    invoker = Invoker({"noun::verb": verb}, [])
    with pytest.raises(Invalid) as refusal:
        await invoker.call("noun::verb", {"name": ["secret"], "x" * 1000: 1}, invoker.system("test"))
    assert "name" in refusal.value.detail
    assert "secret" not in refusal.value.detail
    assert len(refusal.value.detail) < 1000


async def test_a_function_of_another_lane_is_queued() -> None:
    queued = declared(lane="pi", needs={"telephone": Telephone}, accept=verb)
    invoker = Invoker({"far::queued": queued}, [])
    assert await invoker.call("far::queued", {}, invoker.system("test")) == Told(name="x")


# -- scripts


def code(script: str) -> str:
    """A script without its comments."""
    return "\n".join(line.partition("--")[0] for line in (LUA / f"{script}.lua").read_text().splitlines())


def test_the_catalogue_is_what_changes_and_scripts_emit() -> None:
    emitted: set[str] = set()
    for source in STATE.rglob("*.py"):
        emitted |= set(re.findall(r"\bchange\.emit\(\s*\"([a-z_.]+)\"", source.read_text()))
    for script in moves():
        for call in re.findall(r"\b(?:emit|append)\((.*?),\s*(?:A\.|''|data)", code(script), re.S):
            emitted |= set(re.findall(r"'([a-z]+\.[a-z_]+)'", call))
        for names in re.findall(r"local told = \{(.*?)\}", code(script), re.S):
            emitted |= set(re.findall(r"'([a-z]+\.[a-z_]+)'", names))
    # Every GPU script derives the status; a GPU in training was leased, which has its own event.
    emitted |= {f"gpu.{status}" for status in get_args(GpuStatus) if status != "training"}

    # The experiments' store names how an experiment ended, and what its retests made of it.
    emitted |= {f"experiment.{name}" for name in ("finished", "lost", "retested", "refuted")}
    emitted |= {
        f"experiment.{name}" for name in ("confirmed", "demoted", "promoted", "revalued", "unconfirmed")
    }

    emitted |= {*get_args(Replacing)}
    # The proposals' store names what becomes of a trial.
    emitted |= {f"dimension.{name}" for name in ("adopted", "promoted", "reverted")}

    emitted |= {f"pipeline.{kind}" for kind in get_args(StepKind) if kind != "batch"}
    emitted.add("experiment.registered")  # by `register`, alone or as it is submitted

    # What selections and traces end by, in the scripts' shared helpers.
    emitted |= {"selection.committed", "selection.released", "selection.expired"}
    emitted |= {"trace.opened", "trace.ended"}
    emitted |= {
        "run.ticked",
        "run.stopping",
        "run.extended",
    }  # by `rank` and `keep_tick`, however a run reports
    emitted.add("tag.budget_warning")  # by `warn`, wherever the books change

    assert emitted == CATALOGUE.keys()


async def test_every_key_belongs_to_a_named_family(client: httpx.AsyncClient, process: Process) -> None:
    await a_long_story(client, process)
    families = {f.pattern.partition(":")[0] for f in FAMILIES}

    keys = await dump(process.lab, without=frozenset())

    prefix = Keys(process.lab.name)("")
    assert {key.removeprefix(prefix).partition(":")[0] for key in keys} <= families
    literal = {"experiments:mar11-1", "lineage:mar11", "best:mar11", "near_misses:mar11", "gpu_pool:g0"}
    literal |= {"strategy:mar11", "tags:mar11", "crashes:mar11", "dimensions:swarm"}
    assert {prefix + name for name in literal} <= set(keys)


async def a_long_story(client: httpx.AsyncClient, process: Process) -> None:
    """Everything that a lab can go through, once."""
    experiments = Experiments(process.lab)
    await open_tag(client)
    await tried(client, 1.0)
    await tried(client, 1.001, diff="+x\n")
    await crashed(client)
    await told(client, "/api/experiment/resume", tag="mar11")
    await told(client, "/api/search/set-strategy", tag="mar11", mode="exploit", reason="r")
    await told(client, "/api/search/set-policy", tag="mar11", policy={"crash_limit": 4})
    await add_gpu(client, "g0")
    e = await running(client, process)
    await experiments.renew(e.experiment_id, "g0", e.fence, 60, (1.0, 0.5))
    await experiments.keep_log(e, "log")
    await experiments.keep_evidence(e.experiment_id, "digest", {"op": "crash"})
    await told(client, "/api/pool/heartbeat", gpu_id="g0", fence=e.fence, health={"temperature_c": 50})
    await told(client, "/api/experiment/stop", experiment_id=e.experiment_id)
    await expire(process.lab, "g0")
    await told(client, "/api/pool/sweep")
    await silence(process.lab, "g0")
    await told(client, "/api/pool/sweep")
    await told(client, "/api/pool/drain", gpu_id="g0")
    await open_tag(client, "sure", policy={"keep_rule": "confirmed"})
    for value, again in ((1.0, 1.001), (0.99, 1.002)):
        e_id = (await tried(client, value, "sure"))["experiment_id"]
        retest = await told(client, "/api/experiment/retest", experiment_id=e_id, train=False)
        await told(client, "/api/experiment/complete", experiment_id=retest["retest_id"], val_bpb=again)
    await told(client, "/api/experiment/judge-retests", tag=named_by(e_id)[1], experiment_ids=[e_id])
    await add_gpu(client, "g1")
    await told(client, "/api/pool/acquire", experiment_id=await registered(client))
    await told(client, "/api/pool/release", gpu_id="g1")
    await told(client, "/api/tag/budget", tag="mar11", runs=100)
    await told(client, "/api/dimension/define", tag="swarm", profile="mnist")
    await told(client, "/api/tag/pause", tag="mar11")
    await told(client, "/api/experiment/submit", **idea())
    await told(client, "/api/tag/unpause", tag="mar11")
    await told(client, "/api/pool/deregister", gpu_id="g1")
    await a_forest(client)
    waiting = await registered(client)
    await client.get(f"/api/experiment/{waiting}/wait?timeout=0.01")
    await client.post("/api/experiment/register", json=idea(), headers={"idempotency-key": "k"})
    await claimed(process, "pool::sweep", (await process.schedules.look("pool::sweep")).now)
    await told(client, "/api/cron/pause", function="pool::sweep", reason="r")
    await told(client, "/api/cron/run", function="pool::sweep", request_id="r1")
    await told(client, "/api/cron/resume", function="pool::sweep")
    await process.schedules.release("pool::sweep")
    await process.presence.announce("web@h:1", {"kind": "web"})
    webhook_id = await Webhooks(process.lab).add(
        url="https://x", secret=new_secret(), types=None, tag=None, description=""
    )
    await told(client, "/api/webhook/remove", id=webhook_id)
    me = await process.tokens.issue(name="me", role="operator", issued_by="local")
    token, proof = await process.tokens.recognise(me.text)
    await process.tokens.take(proof, 50)
    await process.tokens.open_session(proof)
    await process.tokens.open_ticket(proof)
    await process.tokens.rotate(token, 60)
    await process.tokens.revoke(token)


async def a_forest(client: httpx.AsyncClient) -> None:
    """Everything that traces can go through, once."""
    policy = {"traces.mode": "multi", "traces.target_traces": 2, "traces.max_parallel": 4}
    await told(client, "/api/search/set-policy", tag="mar11", policy=policy)
    for value in (0.9, 0.8):
        chosen = await told(client, "/api/trace/select", tag="mar11", agent="a")
        await told(client, "/api/trace/renew", selection_id=chosen["selection_id"])
        await tried(client, value, selection_id=chosen["selection_id"])
    chosen = await told(client, "/api/trace/merge", tag="mar11")
    await tried(client, 0.7, selection_id=chosen["selection_id"])
    chosen = await told(client, "/api/trace/select", tag="mar11", intent="extend")
    await told(client, "/api/trace/release", selection_id=chosen["selection_id"])
    await told(client, "/api/trace/close", tag="mar11", trace_id=chosen["trace_id"])
    await told(client, "/api/trace/reopen", tag="mar11", trace_id=chosen["trace_id"])
    await told(client, "/api/trace/configure", tag="mar11", priorities={chosen["trace_id"]: 1.5})
