"""pool::heartbeat keeps a GPU in the pool, and with its fence the lease on it."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from functions.contract import Call, Command, Request, Response, function
from functions.rules.access import check_own_gpu
from functions.rules.pool.broken_lease import beat
from state.change import Change
from state.ids import GpuId
from state.pool import Pool
from state.settings import Settings

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
        status = pool.heartbeat(
            change,
            held,
            health,
            renewed=found.renewed,
            stops=found.action == "stop",
            lease_s=settings.stale_s,
        )
        return Alive(ok=True, status=status, fence=gpu.fence, experiment_id=gpu.holder, action=found.action)

    return await pool.change(decide)
