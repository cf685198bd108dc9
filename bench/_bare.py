"""A bare handler: validates the body of a complete, reads three keys at once, makes eight writes in one script.

    python -P -m bench._bare PORT REDIS_URL

uvicorn with uvloop and httptools, Starlette, pydantic, and plain redis-py.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from pydantic import BaseModel, ConfigDict
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PATH = "/complete"
STORED = 1000
"""Number of experiments, which are written in turn."""
MOVE = """
local key, id, value = KEYS[1], ARGV[1], ARGV[2]
redis.call('HSET', key, 'status', 'discard', 'val_bpb', value, 'peak_vram_mb', ARGV[3], 'training_seconds', ARGV[4])
redis.call('HINCRBY', KEYS[2], 'total', 1)
redis.call('HSET', KEYS[3], 'experiment_id', id, 'val_bpb', value)
redis.call('ZADD', KEYS[4], ARGV[5], id)
redis.call('ZADD', KEYS[5], value, id)
redis.call('SREM', KEYS[6], id)
redis.call('SET', KEYS[7], value)
redis.call('XADD', KEYS[8], 'MAXLEN', '~', 10000, '*', 'type', 'experiment.finished', 'subject', id, 'data', value)
return 'ok'
"""


class BareRequest(BaseModel):
    """The body that `bench.http` sends to experiment::complete."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    experiment_id: str
    val_bpb: float
    peak_vram_mb: float
    training_seconds: float


class BareAnswer(BaseModel):
    """An answer of the size of experiment::complete's."""

    experiment_id: str
    status: str
    val_bpb: float
    improved: bool
    delta: float
    best_val_bpb: float | None
    action: str
    near_miss: bool


def make_app(url: str) -> Starlette:
    redis: Any = Redis.from_url(url, decode_responses=True)
    numbers = itertools.count(1)
    others = [f"{{bare}}:{name}" for name in ("tag", "best", "lineage", "near", "open", "last", "events")]
    loaded: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        loaded.append(await redis.script_load(MOVE))
        yield
        await redis.aclose()

    async def complete(request: Request) -> Response:
        asked = BareRequest.model_validate_json(await request.body(), strict=True)
        number = next(numbers)
        key = f"{{bare}}:experiments:{number % STORED}"
        facts = redis.pipeline(transaction=False)
        for each in (key, *others[:2]):
            facts.hgetall(each)
        _, _, best = await facts.execute()
        values = (asked.experiment_id, asked.val_bpb, asked.peak_vram_mb, asked.training_seconds, number)
        await redis.evalsha(loaded[0], 8, key, *others, *values)
        before = float(best.get("val_bpb", "inf"))
        answer = BareAnswer(
            experiment_id=asked.experiment_id,
            status="discard",
            val_bpb=asked.val_bpb,
            improved=asked.val_bpb < before,
            delta=0.0,
            best_val_bpb=asked.val_bpb,
            action="revert",
            near_miss=False,
        )
        return Response(answer.model_dump_json(), media_type="application/json")

    return Starlette(routes=[Route(PATH, complete, methods=["POST"])], lifespan=lifespan)


if __name__ == "__main__":
    uvicorn.run(
        make_app(sys.argv[2]),
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        ws="none",
        access_log=False,
        log_level="warning",
    )
