"""The pool forgets GPUs that are offline for days, and the GPUs of a revoked token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from functions.pool.returning import FORGET_GPU_DAYS
from state.experiments import Experiments
from state.pool import Pool
from tests.conftest import http_client
from tests.labs import add_gpu, bearer, begun, events_of, open_tag, registered, silence, told

DAY_S = 86400.0


@pytest.fixture
async def olga(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    """An operator of a lab with a tag."""
    async with http_client(process) as http:
        http.headers.update(await bearer(process, "olga", "operator"))
        await open_tag(http, policy={"baseline_first": False})
        yield http
        assert (await told(http, "/api/lab/audit"))["violations"] == []


async def token_id(process: Process, name: str) -> str:
    return next(token.id for token in await process.tokens.all() if token.name == name)


# -- offline for days


async def test_a_gpu_that_is_offline_for_days_is_forgotten(process: Process, olga: httpx.AsyncClient) -> None:
    wes, pool = await bearer(process, "wes", "worker"), Pool(process.lab)
    for gpu_id in ("gone:0", "away:0", "here:0"):
        body = {"gpu_id": gpu_id, "gpu_index": 0, "gpu_name": "H100", "vram_mb": 80000.0}
        assert (await olga.post("/api/pool/register", json=body, headers=wes)).status_code == 200
    for gpu_id in ("drained:0", "back:0"):
        await add_gpu(olga, gpu_id)
    await told(olga, "/api/pool/drain", gpu_id="drained:0")
    for gpu_id in ("gone:0", "drained:0", "back:0"):
        await silence(process.lab, gpu_id, FORGET_GPU_DAYS * DAY_S)
    await silence(process.lab, "away:0", FORGET_GPU_DAYS * DAY_S - 600)

    first = await told(olga, "/api/pool/sweep")
    as_read = await pool.get("back:0")
    await told(olga, "/api/pool/heartbeat", gpu_id="back:0")
    heard_since = await pool.deregister("back:0", heartbeat_at=as_read.heartbeat_at)
    second = await told(olga, "/api/pool/sweep")

    assert sorted(first["offline"]) == ["away:0", "back:0", "drained:0", "gone:0"]
    assert (first["forgotten"], second["forgotten"]) == ([], ["gone:0"])
    assert heard_since == "other"
    assert sorted(await pool.ids()) == ["away:0", "back:0", "drained:0", "here:0"]
    reasons = [event["reason"] for event in await events_of(process, "gpu.offline")]
    assert reasons[-1] == "forgotten after 7 days offline"


# -- a revoked token


async def test_the_gpus_of_a_revoked_token_are_forgotten_at_once_and_their_runs_wait_again(
    process: Process, olga: httpx.AsyncClient
) -> None:
    async with http_client(process) as wes, http_client(process) as kim:
        wes.headers.update(await bearer(process, "wes", "worker"))
        kim.headers.update(await bearer(process, "kim", "worker"))
        await add_gpu(wes, "wes:0")
        name = await registered(olga)
        assert (await told(olga, "/api/pool/acquire", experiment_id=name))["gpu_id"] == "wes:0"
        await told(olga, "/api/gpu/train", experiment_id=name)
        await begun(process, name)
        await add_gpu(wes, "wes:1")
        await add_gpu(kim, "kim:0")
    wes_id = await token_id(process, "wes")

    revoked = await told(olga, "/api/token/revoke", id=wes_id)
    again = await told(olga, "/api/token/revoke", id=wes_id)

    assert sorted(revoked["gpus"]) == ["wes:0", "wes:1"]
    assert again["gpus"] == []
    assert await Pool(process.lab).ids() == ["kim:0"]
    run = await Experiments(process.lab).get(name)
    assert (run.status, run.attempt, run.gpu_id) == ("queued", 2, None)


# -- those who came in with an enroll token


async def test_revoking_an_enroll_token_can_revoke_all_who_came_in_with_it(
    process: Process, olga: httpx.AsyncClient
) -> None:
    invite = await told(olga, "/api/token/issue", name="invite", role="worker", kind="enroll", uses=9)
    other = await told(olga, "/api/token/issue", name="other", role="worker", kind="enroll", uses=9)
    joined = {
        name: (await told(olga, "/api/token/enroll", enroll_token=by["token"], name=name))["token"]
        for name, by in (("box1", invite), ("box2", invite), ("box3", other))
    }
    async with http_client(process) as box:
        box.headers["authorization"] = f"Bearer {joined['box1']}"
        await add_gpu(box, "box1:0")

    async def let_in() -> list[str]:
        answers = await asyncio.gather(
            *(
                olga.get("/api/token/whoami", headers={"authorization": f"Bearer {t}"})
                for t in joined.values()
            )
        )
        return [name for name, a in zip(joined, answers, strict=True) if a.status_code == 200]

    alone = await told(olga, "/api/token/revoke", id=invite["id"])
    stay = await let_in()
    all_of_it = await told(olga, "/api/token/revoke", id=invite["id"], descendants=True)

    assert (alone["descendants"], alone["gpus"]) == ([], [])
    assert stay == ["box1", "box2", "box3"]
    assert (sorted(all_of_it["descendants"]), all_of_it["gpus"]) == (["box1", "box2"], ["box1:0"])
    assert await let_in() == ["box3"]
