"""pool::register_gpu adds a GPU or CPU slot to the pool."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from functions.contract import Call, Command, Http, Response, function
from functions.rules.access import check_own_gpu
from functions.views.gpus import WorkerView, worker_view
from state.errors import Conflict, Invalid
from state.ids import GpuId
from state.pool import Pool
from state.records import Gpu, Transport
from state.refusals import served_by_another
from state.settings import Settings

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
    asked = Gpu.model_validate(request.model_dump(exclude={"request_id", "replaced"}) | whose)
    while True:
        found = await pool.register(
            asked, of_any=caller.is_lab, most_of_owner=most, replaced=request.replaced
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
