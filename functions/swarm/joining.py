"""Workers of a swarm: they register, and sync what they are to do."""

from __future__ import annotations

import asyncio
import hmac
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, WithJsonSchema

from functions.experiments.rules.opening import FIRST, first_policy, swarm_policy, swarm_tag
from functions.experiments.rules.verdict import check_plausible
from functions.formats.program_document import DocumentReader
from functions.kernel.contract import Call, Command, Http, Request, Response, function
from functions.kernel.rules.access import LOCAL, Caller, check_tags, check_worker
from functions.pi.views import document_for
from functions.swarm.dimensions import swarm_dimensions
from functions.swarm.rules.dimensions import checked, defined, definition_events
from functions.swarm.rules.handing_out import run_time_s
from functions.swarm.rules.populations import population_of
from state.change import Change
from state.dimensions import Dimensions
from state.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from state.experiments import Experiments
from state.ids import Id
from state.ids import Tag as TagName
from state.program_facts import ServedProgram
from state.programs import Programs, digest_of
from state.quota import Quota, counting, enforced
from state.records import SwarmWorker, Value, score, view_of
from state.settings import Settings
from state.swarm_facts import SwarmFacts
from state.swarms import Swarms
from state.tags import begin
from state.token_values import Token
from state.tokens import Tokens


@dataclass(frozen=True)
class JoiningStores:
    experiments: Experiments
    swarms: Swarms
    programs: Programs
    dimensions: Dimensions
    tokens: Tokens


BODY_LIMIT = 16 * 1024
"""Bytes: strangers send it."""
OVERLAP_S = 600.0
"""Seconds for which the token before is good: the answer with the new one may be lost."""
INVALID = "Invalid enroll token"
DEFINE = "an operator defines what may be varied: ./nightjar dims define"


class RegisterWorker(Command):
    worker_id: Id = Field(description="the worker's name, a new one", examples=["h100-3"])
    gpu_type: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        description="its GPU: early stopping ranks its runs among those of the same", examples=["NVIDIA H100"]
    )
    baseline_bpb: float = Field(
        description="what the unchanged train.py measured there: deltas are against it", examples=[0.9979]
    )
    contact: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="how to reach its owner", examples=["ann@example.org"]
    )
    enroll_token: Annotated[str, Field(max_length=1000)] | None = Field(
        None,
        description="the team's secret, or an enroll token of the organiser",
        examples=["nj_mfrggzdfmz_..."],
    )
    tag: TagName | None = Field(
        None, description="the swarm; default: NIGHTJAR_SWARM_TAG", examples=["swarm"]
    )


class Welcome(Response):
    ok: bool
    message: str
    current_program_md: str
    """The swarm's program; empty while none was written."""
    worker_token: str
    """Send it as X-Worker-Token; it is shown here and never again."""


@function(
    "swarm::register",
    Http("POST", "/register", BODY_LIMIT),
    role="anyone",
    writes=True,
    keeps_answer=False,
    knows_caller=True,
)
async def register(request: RegisterWorker, call: Call, stores: JoiningStores, settings: Settings) -> Welcome:
    """Join a swarm with a baseline: a name and a token of your own; a known worker brings another baseline."""
    tag = request.tag or settings.swarm_tag
    worker, served, swarm = await asyncio.gather(
        stores.swarms.worker(request.worker_id), stores.programs.served(tag), stores.swarms.find(tag)
    )
    if swarm is not None and swarm.tag.hidden_split:
        raise Conflict(
            f"{tag!r} has a hidden split, and a swarm's workers would read it on their own machines",
            hint="join another tag",
        )
    _check_baseline(request.baseline_bpb, swarm)
    if worker is not None:
        _check_again(request, call.caller, worker)
        issued = await stores.swarms.rejoin(worker, _asked(request, worker.tag), call.proof, OVERLAP_S)
        if worker.tag != tag:
            served = await stores.programs.served(worker.tag)
        return _welcome(*issued, served, call.lab_url(settings))
    enrolling = await _admitted(request, call, stores, settings)
    await _open_swarm(tag, stores.dimensions, settings)
    is_invited = enrolling is not None or None not in (settings.swarm_secret, request.enroll_token)
    with counting(Quota(enrolling.name, settings.stored_bytes_a_day) if enrolling else enforced()):
        issued = await stores.swarms.join(
            _asked(request, tag), call.caller.name, enrolling, is_limited=is_invited
        )
    return _welcome(*issued, served, call.lab_url(settings))


def _check_baseline(value: float, swarm: SwarmFacts | None) -> None:
    """Refuse what no run can have measured; the default metric for a new swarm. Raises as `check_plausible`."""
    try:
        check_plausible(swarm.tag.metric if swarm else "val_bpb", value)
    except Invalid as problem:
        raise Invalid(
            f"the baseline {problem.detail}", hint="send what the unchanged train.py has measured"
        ) from problem


def _asked(request: RegisterWorker, tag: str) -> dict[str, object]:
    said = request.model_dump(include={"worker_id", "gpu_type", "baseline_bpb", "contact"})
    return {**said, "tag": tag}


def _welcome(worker: SwarmWorker, token: str, served: ServedProgram, url: str) -> Welcome:
    reader = DocumentReader(url, worker.tag, worker.worker_id, is_worker=True)
    return Welcome(
        ok=True,
        message=f"Welcome {worker.worker_id}! You are worker #{worker.number}.",
        current_program_md=document_for(served, reader),
        worker_token=token,
    )


def _check_again(request: RegisterWorker, caller: Caller, worker: SwarmWorker) -> None:
    """Refuse to take over or move a known worker. Raises Unauthenticated, Forbidden; Conflict: another tag's."""
    known = f"{worker.worker_id!r} has joined already"
    hint = "send its token as X-Worker-Token to go on as that worker, or join under another worker_id"
    if not caller.may_do_all and (caller.role, caller.name) != ("worker", worker.worker_id):
        if caller.token_id is None:
            raise Unauthenticated(known, hint=hint)
        raise Forbidden(known, hint=hint)
    if request.tag not in (None, worker.tag):
        raise Conflict(
            f"{worker.worker_id!r} serves the swarm of {worker.tag!r}",
            hint="join the other swarm under another worker_id",
        )


async def _admitted(
    request: RegisterWorker, call: Call, stores: JoiningStores, settings: Settings
) -> Token | None:
    """The enroll token that a new worker has; None: it needs none, or knows the team's secret.

    An open lab without a secret admits every worker of its own machine. An operator lets in whom it wants. An address
    that has sent too many wrong secrets has to wait: people may choose short ones. An enroll token is no guess.

    Raises Unauthenticated: it may not join. TooManyRequests: too many wrong secrets came from its address.
    """
    caller = call.caller
    if caller.may_do_all:
        return None
    secret, given = settings.swarm_secret, request.enroll_token
    if secret is None and caller == LOCAL:
        return None
    if given is None:
        raise _not_admitted()
    with suppress(Unauthenticated):
        token, proof = await stores.tokens.recognise(given)
        if token.kind == "enroll" and token.role == "worker":
            await stores.tokens.take(proof, settings.rate_per_s)
            return token
    if secret is not None:
        await stores.tokens.check_may_try(call.address)
        if hmac.compare_digest(given.encode(), secret.get_secret_value().encode()):
            return None
        await stores.tokens.take_try(call.address)
    raise _not_admitted()


def _not_admitted() -> Unauthenticated:
    return Unauthenticated(
        INVALID,
        hint="send the team's secret, or an enroll token for workers, as enroll_token: the organiser has it",
    )


async def _open_swarm(tag: str, dimensions: Dimensions, settings: Settings) -> None:
    """Open NIGHTJAR_SWARM_TAG by its profile if it is missing. Raises NotFound: no tag. Conflict: nothing varies."""

    async def decide(change: Change) -> None:
        facts = await dimensions.facts(tag, change)
        if facts.dimensions:
            return
        if facts.exists:
            raise Conflict(f"{tag!r} has no swarm: nothing may be varied in it", hint=DEFINE)
        if tag != settings.swarm_tag:
            raise NotFound(f"there is no swarm {tag!r}", hint=DEFINE)
        declared = await asyncio.to_thread(swarm_dimensions, settings.swarm_profile)
        made = defined([], [checked(d) for d in declared], replace=False, by="nightjar", at=facts.now)
        policy = swarm_policy(first_policy(settings.near_miss_threshold, settings.max_consecutive_crashes))
        event, froze = definition_events(made, tag, by="nightjar", profile=settings.swarm_profile)
        await begin(change, swarm_tag(tag), FIRST, policy)
        dimensions.define(change, tag, made.dimensions, event, froze)

    await dimensions.change(decide)


TOP = 5


class ReadSync(Request):
    worker_id: Id = Field(description="who asks", examples=["h100-3"])


class SyncedDimension(Response):
    name: str
    frozen: bool
    frozen_value: Annotated[Value | None, WithJsonSchema({})]
    importance: float | None
    best_known_value: Annotated[Value | None, WithJsonSchema({})]
    """What the best run had."""
    is_canary: bool
    """On trial: only a share of the configs varies it."""
    default_value: Annotated[Value | None, WithJsonSchema({})]
    """Its value in train.py, for configs that leave it out as most do during its trial; null: all configs name it."""


class TopConfig(Response):
    config_delta: dict[str, object]
    delta_bpb: float


class Synced(Response):
    program_md: str
    """The whole document for the worker's population; empty: keep the one that you have."""
    program_digest: str
    """First 16 hexadecimal digits of its SHA-256."""
    dimensions: list[SyncedDimension]
    top_configs: list[TopConfig]
    """The best runs, best first."""
    experiment_count: int
    active_workers: int
    budget_seconds: int
    """Seconds of a run without extension. A worker measures its baseline with it."""
    population_id: str
    population_strategy: str
    hypothesis_id: str | None
    hypothesis_statement: str
    updated_at: float
    """When the newest run of the swarm ended, in seconds since 1970; else when its tag was opened."""


@function(
    "swarm::sync",
    Http("GET", "/sync/{worker_id}", has_etag=True),
    Http("POST", "/sync/{worker_id}", has_etag=True),
    role="worker",
)
async def sync(request: ReadSync, call: Call, stores: JoiningStores, settings: Settings) -> Synced:
    """What the swarm knows, for a worker between two runs."""
    check_worker(call.caller, request.worker_id)
    return await synced(await stores.swarms.known(request.worker_id), call.lab_url(settings), stores)


async def synced(worker: SwarmWorker, lab_url: str, stores: JoiningStores) -> Synced:
    """The answer for one worker; writes nothing."""
    facts, judged, served = await asyncio.gather(
        stores.swarms.facts(worker.tag),
        stores.swarms.best_runs(worker.tag, TOP),
        stores.programs.served(worker.tag),
    )
    best = sorted(judged, key=lambda run: score(run.judged or 0.0, facts.tag.direction))[:TOP]
    population = population_of(worker, facts)
    reader = DocumentReader(lab_url, worker.tag, worker.worker_id, is_worker=True)
    program = document_for(served, reader, population)
    known = best[0].config_delta if best else {}
    return Synced(
        program_md=program,
        program_digest=digest_of(program),
        dimensions=[
            view_of(SyncedDimension, d, best_known_value=known.get(d.name)) for d in facts.dimensions
        ],
        top_configs=[
            TopConfig(config_delta=run.config_delta, delta_bpb=run.delta_bpb)
            for run in best
            if run.delta_bpb is not None
        ],
        experiment_count=facts.tag.results,
        active_workers=facts.active_workers,
        budget_seconds=run_time_s(facts.policy),
        population_id=population.population_id,
        population_strategy=population.strategy,
        hypothesis_id=population.hypothesis_id,
        hypothesis_statement=population.statement,
        updated_at=facts.newest_at,
    )


@function("swarm::preview", role="viewer")
async def preview(request: ReadSync, call: Call, stores: JoiningStores, settings: Settings) -> Synced:
    """The answer that a swarm's worker would get of /sync now, for other readers."""
    worker = await stores.swarms.known(request.worker_id)
    check_tags(call.caller, {"tag": worker.tag})
    return await synced(worker, call.lab_url(settings), stores)
