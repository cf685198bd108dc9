"""GPUs of the pool: registered, alive, listed, drained, probed, deregistered."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from functions.kernel.contract import Call, Command, Http, On, Request, Response, function
from functions.kernel.rules.access import check_own_gpu
from functions.pool.rules.health import WorkerView, pool_counts, worker_view
from functions.pool.rules.leases import Breaker, beat, is_probe
from functions.pool.rules.lending import may_run
from functions.trust.rules.ruling import retest_of
from state.change import Change
from state.errors import BudgetExhausted, Conflict, Invalid
from state.experiments import Experiments
from state.ids import ExperimentId, GpuId, named_by
from state.pool import Pool
from state.presence import FORGOTTEN_S, Presence
from state.records import OPEN, Experiment, Gpu, Transport
from state.refusals import no_gpu, served_by_another
from state.settings import Settings
from state.tags import Tags
from state.train_queue import TrainQueue
from state.trust import HiddenNumbers
from state.wakeups import Wakeups

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GpuStores:
    pool: Pool
    experiments: Experiments
    tags: Tags
    train_queue: TrainQueue
    numbers: HiddenNumbers
    wakeups: Wakeups


WORKER_GPUS = 64
"""GPUs that a worker with a token may register for the lab."""
AGENT_GPUS = 8
"""GPUs that an agent with a token may register for itself."""
Name = Annotated[str, Field(min_length=1, max_length=100)]


class Register(Command):
    gpu_id: GpuId
    gpu_index: int = Field(ge=0, description="as CUDA_VISIBLE_DEVICES counts", examples=[0])
    gpu_name: Name = Field(description="the model: runs on others are not compared", examples=["NVIDIA H100"])
    vram_mb: float = Field(ge=0, description="its memory", examples=[81559])
    uuid: Name | None = Field(None, description="as the driver names it", examples=["GPU-5a1b"])
    host: Name | None = Field(None, description="the machine that it is in", examples=["node1"])
    boot_id: Name | None = Field(
        None, description="another one means that the machine was started again", examples=["c1d0a3f2"]
    )
    transport: Transport = Field(
        "redis",
        description="http: its worker asks pool::next for runs, and needs no Redis",
        examples=["http"],
    )
    keeper: Name | None = Field(
        None,
        description="the process that serves it; while it does, no other one may",
        examples=["node1:4711:8f3c/90210"],
    )
    replaced: Name | None = Field(
        None, description="the keeper that was found and has ended", examples=["node1:4242:8f3c/80120"]
    )
    scripts: list[Annotated[str, Field(max_length=1000)]] = Field(
        default=["train.py"],
        max_length=32,
        description="paths of the file that its command runs, the first that exists; empty: not known",
        examples=[["src/main.py"]],
    )
    environment: list[Name] = Field(
        default=[],
        max_length=2000,
        description="the Python that trains, and its packages",
        examples=[["python==3.11.9", "torch==2.4.1"]],
    )
    labels: dict[Name, Annotated[str, Field(max_length=100)]] = Field(
        default_factory=dict,
        max_length=32,
        description="what pool::acquire may ask for",
        examples=[{"room": "east"}],
    )


class Registered(Response):
    registered: bool
    worker: WorkerView


@function(
    "pool::register_gpu",
    Http("POST", "/api/pool/register"),
    role=("agent", "worker"),
    writes=True,
    keeps_answer=False,
)
async def register_gpu(request: Register, call: Call, pool: Pool, settings: Settings) -> Registered:
    """Add a GPU, or bring a known one back; a lease on it stays.

    An agent's GPU is for that agent alone: the lab trains nothing there.
    """
    caller, is_agent = call.caller, call.caller.role == "agent"
    most = None if caller.is_lab else AGENT_GPUS if is_agent else WORKER_GPUS
    if is_agent and request.transport == "http":
        raise Invalid(
            "an agent's GPU is for itself: the lab lends it to no run that pool::next could hand out",
            hint="serve the lab with a worker's token, or leave transport out",
        )
    whose = {"owner": None if caller.is_lab else caller.name, "of_agent": is_agent}
    asked = Gpu.model_validate(request.model_dump(exclude={"request_id", "replaced", "environment"}) | whose)
    while True:
        found = await pool.register(
            asked, request.environment, of_any=caller.is_lab, most_of_owner=most, replaced=request.replaced
        )
        if found == "full":
            raise Conflict(
                f"{caller.name!r} has registered {most} GPUs, as many as one {caller.role} may have",
                hint="POST /api/pool/deregister forgets one that you need no more; GET /api/pool/list shows them"
                if is_agent
                else "have an operator forget those that are gone (POST /api/pool/deregister), or issue a token",
                fields={"code": "gpu_limit", "limit": most},
            )
        if found == "served":
            raise served_by_another(request.gpu_id)
        if found != "other":
            gpu, now = found
            return Registered(registered=True, worker=worker_view(gpu, now, settings.stale_s))
        if (other := await pool.find(request.gpu_id)) is not None:
            check_own_gpu(caller, other, request.gpu_id)


Note = Annotated[str, Field(max_length=1000)]
Measured = Annotated[
    float | Note | None, WithJsonSchema({"type": ["number", "string", "null"], "maxLength": 1000})
]
"""A further value; its schema is written out, because client generators know no unions with null in a map."""


class Sample(Request):
    """What a worker measured on its GPU; further values are kept as they are."""

    model_config = ConfigDict(extra="allow")
    # how pydantic is told the type of further values
    __pydantic_extra__: dict[str, Measured]  # pyright: ignore[reportIncompatibleVariableOverride]

    temperature_c: float | None = Field(None, description="of the GPU", examples=[61])
    memory_used_mb: float | None = Field(None, description="GPU memory in use", examples=[45060])
    memory_total_mb: float | None = Field(None, description="GPU memory there is", examples=[81559])
    utilization_percent: float | None = Field(None, description="of the GPU", examples=[98])
    power_w: float | None = Field(None, description="watts drawn", examples=[640])
    throttle: Note | None = Field(None, description="why the clocks are lowered", examples=["sw_power_cap"])
    ecc: Annotated[int, Field(ge=0, le=2**63)] | None = Field(
        None, description="uncorrected memory errors so far", examples=[0]
    )
    xid: Annotated[int, Field(ge=0, le=2**63)] | None = Field(
        None, description="the driver's newest error", examples=[79]
    )
    disk_free_mb: float | None = Field(None, description="where runs are checked out", examples=[812000])
    error: Note | None = Field(None, description="why it could not be measured", examples=["NVML is gone"])

    @model_validator(mode="after")
    def _few(self) -> Sample:
        if len(self.__pydantic_extra__) > 24 or any(len(name) > 100 for name in self.__pydantic_extra__):
            raise ValueError(
                "at most 24 values beside the known ones, each with a name of at most 100 characters"
            )
        return self


class Heartbeat(Command):
    gpu_id: GpuId
    fence: int | None = Field(None, ge=1, description="the lease's: the right one renews it", examples=[17])
    health: Sample | None = Field(None, description="what was measured", examples=[{"temperature_c": 61}])


class Alive(Response):
    ok: bool
    status: str
    fence: int
    experiment_id: str | None
    action: Annotated[str | None, Field(description="stop | drain | prove: what the caller has to do")] = None


@function("pool::heartbeat", role=("agent", "worker"), writes=True, keeps_answer=False)
async def heartbeat(request: Heartbeat, call: Call, pool: Pool, settings: Settings) -> Alive:
    """Say that a GPU is alive. The right fence renews the lease; a wrong fence is told to stop.

    The right fence is told to stop, too, after its experiment was stopped or its tag was paused with `stop_running`.
    """
    health = request.health.model_dump(exclude_none=True) if request.health else None

    async def decide(change: Change) -> Alive:
        held = await pool.holding(request.gpu_id, change)
        gpu = held.gpu
        check_own_gpu(call.caller, gpu, gpu.gpu_id)
        found = beat(held, request.fence)
        stops = found.action == "stop"
        status = pool.heartbeat(
            change, held, health, renewed=found.renewed, stops=stops, lease_s=settings.stale_s
        )
        return Alive(ok=True, status=status, fence=gpu.fence, experiment_id=gpu.holder, action=found.action)

    return await pool.change(decide)


MOST = 128
"""Most processes that a token's owner has announced at once: 64 GPUs, and a supervisor for each."""

Line = Annotated[str, Field(max_length=2000)]


class WorkerProcess(Request):
    process: Annotated[str, Field(pattern=r"^(supervisor|keeper)@[^:/]{1,100}:[0-9]{1,10}$")] = Field(
        description="<kind>@<host>:<pid>", examples=["keeper@node1:4711"]
    )
    ended: bool = Field(False, description="whether it ends now: then it is forgotten")
    slots: int | None = Field(None, description="a supervisor's GPUs and CPU slots", examples=[2])
    gpu_id: Line | None = Field(None, description="a keeper's", examples=["node1:gpu0"])
    repo: Line | None = Field(None, description="the project that it trains", examples=["/srv/project"])
    repository_head: Line | None = Field(
        None,
        description="that project's newest commit; taken from the lab's own workers alone",
        examples=["4f9a1c2"],
    )
    training: Line | None = Field(
        None, description="what it trains with and on, for people", examples=["train.py on 2 GPUs"]
    )
    isolation: Line | None = Field(
        None, description="how far its runs are kept from its machine", examples=["bwrap"]
    )
    no_stronger_isolation: Line | None = Field(
        None, description="why no stronger isolation works there", examples=["bubblewrap is not installed"]
    )
    warnings: list[Line] = Field(
        default_factory=list,
        max_length=32,
        description="what its owner should know",
        examples=[["the project has no .venv"]],
    )


class WorkerShown(Response):
    name: str


@function("pool::announce", role="worker", writes=True, keeps_answer=False)
async def announce(request: WorkerProcess, call: Call, presence: Presence) -> WorkerShown:
    """Show a worker's process in lab::status for a minute, or take it out. Decides nothing."""
    owner = call.caller.owner
    name = request.process if owner is None else f"{request.process}/{owner}"
    if request.ended:
        await presence.leave(name)
        return WorkerShown(name=name)
    kind, _, place = request.process.partition("@")
    host, _, pid = place.partition(":")
    said = request.model_dump(exclude={"process", "ended"}, exclude_unset=True)
    facts = {"kind": kind, "host": host, "pid": int(pid), **said}
    if owner is not None:
        facts.pop("repository_head", None)
        its = {p.name for p in await presence.alive(FORGOTTEN_S) if p.name.endswith(f"/{owner}")}
        if len(its) >= MOST and name not in its:
            raise Conflict(
                f"{len(its)} processes of {owner!r} are announced already",
                hint="it may work unannounced; those that are silent for an hour are forgotten",
            )
    await presence.announce(name, facts)
    return WorkerShown(name=name)


class GpuList(Response):
    workers: list[WorkerView]
    total: int
    idle: int
    training: int
    offline: int
    draining: int
    unhealthy: int


@function("pool::list", Http("GET", "/api/pool/list"), Http("POST", "/api/pool/list"), role="viewer")
async def list_gpus(request: Request, pool: Pool, settings: Settings) -> GpuList:
    """Every GPU and CPU slot with its lease and health; a pure read."""
    now, gpus = await pool.roster()
    return GpuList(
        workers=[worker_view(gpu, now, settings.stale_s) for gpu in gpus],
        **pool_counts(gpus, now, settings.stale_s),
    )


class Probe(Command):
    experiment_id: ExperimentId = Field(description="what has ended there")
    gpu_id: GpuId | None = Field(None, description="without one there is nothing to look at")


class Probing(Response):
    retest_id: str | None
    """The run of the baseline that was begun; null where none is wanted."""


@function("pool::probe", On("experiment.finished", having="gpu_id"), role="operator", writes=True)
async def probe(request: Probe, stores: GpuStores, settings: Settings) -> Probing:
    """Run a tag's baseline on a GPU with crashes in a row, to test the GPU; safe to run twice."""
    _, tag = named_by(request.experiment_id)
    breaker = Breaker(settings.cooldown_s)
    while True:
        gpu = await stores.pool.find(request.gpu_id) if request.gpu_id else None
        if gpu is None or not breaker.wants_probe(gpu):
            return Probing(retest_id=None)
        baseline_id = (await stores.tags.get(tag)).baseline_id
        if baseline_id is None:
            return Probing(retest_id=None)
        facts = await stores.experiments.retest_facts(baseline_id)
        is_under_way = any(r.status in OPEN and r.pinned_gpu == gpu.gpu_id for r in facts.retests)
        if is_under_way or not _can_tell(facts.experiment, gpu):
            return Probing(retest_id=None)
        retest = retest_of(facts.experiment, facts.retests, facts.policy)
        try:
            begun = await stores.experiments.begin_retest(replace(retest, pinned_gpu=gpu.gpu_id))
        except BudgetExhausted as problem:
            log.warning("%s is not probed by %s: %s", gpu.gpu_id, baseline_id, problem.detail)
            return Probing(retest_id=None)
        if begun is not None:
            return Probing(retest_id=begun.experiment_id)


def _can_tell(baseline: Experiment, gpu: Gpu) -> bool:
    """Whether a run of the baseline on this GPU would test it, and the lab lends it."""
    same_class = may_run(baseline.model_copy(update={"retest_of": baseline.experiment_id}), gpu)
    return is_probe(baseline) and same_class and gpu.owner is None


class Drain(Command):
    gpu_id: GpuId
    undo: bool = Field(False, description="let it take runs again")


class Drained(Response):
    gpu_id: str
    status: str
    experiment_id: str | None
    """The experiment that it is lent to."""


@function("pool::drain", role="operator", writes=True)
async def drain(request: Drain, pool: Pool) -> Drained:
    """Do not lend a GPU any more; what runs on it may finish. `undo` lends it again and forgets its crashes."""
    if request.undo:
        forgotten = ("drained", "tripped", "tripped_until", "trips", "consecutive_crashes")
        gpu = await pool.flag(request.gpu_id, clear=forgotten, reason="an operator took the drain back")
    else:
        gpu = await pool.flag(request.gpu_id, set_={"drained": True}, reason="an operator drains it")
    if gpu is None:
        raise no_gpu(request.gpu_id)
    return Drained(gpu_id=request.gpu_id, status=gpu.status, experiment_id=gpu.holder)


class Deregister(Command):
    gpu_id: GpuId


class Deregistered(Response):
    deregistered: bool


@function("pool::deregister", role=("agent", "operator"), writes=True)
async def deregister(request: Deregister, call: Call, pool: Pool) -> Deregistered:
    """Forget a GPU that is not lent; an agent forgets those that it registered for itself."""
    caller = call.caller
    owner = None if caller.may_do_all else caller.name
    agent = owner if caller.role == "agent" else None
    while True:
        match await pool.deregister(request.gpu_id, agent=agent, owner=owner):
            case "ok":
                return Deregistered(deregistered=True)
            case "unknown":
                raise no_gpu(request.gpu_id)
            case "other":
                if (other := await pool.find(request.gpu_id)) is not None:
                    check_own_gpu(caller, other, request.gpu_id)
            case "held":
                raise Conflict(
                    f"{request.gpu_id} is lent",
                    hint="POST /api/pool/drain first, then wait until it is free"
                    if caller.may_do_all
                    else "give it back first: POST /api/pool/release",
                )
