"""A process that is killed (-9) after any write of a request leaves nothing half done; asking again does the rest."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.experiments import Experiments
from state.pool import Pool
from state.settings import Settings
from tests.conftest import http_client
from tests.dying import Asked, died
from tests.labs import add_gpu, bearer, begun, curl, events_of, open_tag, registered, told


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Of a lab that takes requests as fast as these tests send them."""
    return settings.model_copy(update={"rate_per_s": 1e6})


@pytest.fixture
async def olga(process: Process, client: httpx.AsyncClient) -> httpx.AsyncClient:
    """HTTP as an operator."""
    client.headers.update(await bearer(process, "olga", "operator"))
    return client


def as_olga(http: httpx.AsyncClient, path: str, *, key: str | None = None, **body: Any) -> Asked:
    keyed = {} if key is None else {"idempotency_key": key}
    return Asked(path, body, {"authorization": http.headers["authorization"], **keyed})


async def seconds_later(process: Process) -> None:
    """As if it had been long enough since a process died that was answering a keyed request."""
    async for key in process.lab.scan("answers:*"):
        if '"body"' not in await process.lab.command("GET", key):
            await process.lab.command("DEL", key)


async def sent(http: httpx.AsyncClient, asked: Asked) -> dict[str, Any]:
    answer = await curl(http, asked.path, asked.body, **asked.headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def audited(http: httpx.AsyncClient) -> None:
    assert (await told(http, "/api/lab/audit"))["violations"] == []


async def test_a_revocation_that_was_cut_off_does_what_is_left_when_it_is_repeated(
    process: Process, settings: Settings, olga: httpx.AsyncClient
) -> None:
    async def a_worker_with_a_run(nth: int) -> str:
        invite = await told(
            olga, "/api/token/issue", name=f"swarm{nth}", role="worker", kind="enroll", uses=1
        )
        async with http_client(process) as wes:
            enrolled = await told(wes, "/api/token/enroll", enroll_token=invite["token"], name=f"wes{nth}")
            wes.headers["authorization"] = f"Bearer {enrolled['token']}"
            for gpu in "01":
                await add_gpu(wes, f"wes{nth}:{gpu}")
        name = await registered(olga)
        assert (await told(olga, "/api/pool/acquire", experiment_id=name))["acquired"]
        await told(olga, "/api/gpu/train", experiment_id=name)
        await begun(process, name)
        return str(invite["id"])

    await open_tag(olga, policy={"baseline_first": False, "max_attempts": 20})
    nth = 0
    while True:
        nth += 1
        invite = await a_worker_with_a_run(nth)
        asked = as_olga(olga, "/api/token/revoke", key=f"k{nth}", id=invite, descendants=True)

        was_killed = await died(settings, asked, nth)

        await audited(olga)
        await seconds_later(process)
        answer = await sent(olga, asked)
        assert answer["descendants"] == [f"wes{nth}"]
        assert await Pool(process.lab).ids() == []
        await audited(olga)
        [e] = await Experiments(process.lab).many([f"mar11-{nth}"])
        assert (e.status, e.attempt, e.gpu_id) == ("queued", 2, None)
        await told(olga, "/api/experiment/stop", experiment_id=e.experiment_id)
        if not was_killed:
            break
    assert nth > 4
    revoked = [e["subject"] for e in await events_of(process, "token.revoked")]
    assert sorted(revoked) == sorted(f"{who}{n + 1}" for n in range(nth) for who in ("swarm", "wes"))
