"""The names that the lab itself acts under are nobody else's, at every door where a name is given."""

from __future__ import annotations

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from tests.functions.swarm.test_swarm import DIMENSIONS
from tests.labs import bearer, idea, open_tag, refused, told

NAMES = pytest.mark.parametrize("name", ["lab", "system", "System"])


@NAMES
async def test_no_token_is_made_under_them(client: httpx.AsyncClient, process: Process, name: str) -> None:
    client.headers.update(await bearer(process, "olga", "operator"))
    invite = await told(client, "/api/token/issue", name="team", role="agent", kind="enroll", uses=9)
    issued = await refused(client, 409, "/api/token/issue", name=name, role="agent")
    enrolled = await refused(client, 409, "/api/token/enroll", name=name, enroll_token=invite["token"])
    assert "Nightjar's own" in issued["detail"]
    assert "Nightjar's own" in enrolled["detail"]


@NAMES
async def test_no_worker_joins_under_them(client: httpx.AsyncClient, name: str) -> None:
    await told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)
    await refused(client, 409, "/register", worker_id=name, gpu_type="H100", baseline_bpb=1.0)


@NAMES
@pytest.mark.parametrize("verb", ["register", "submit"])
async def test_no_agent_works_under_them(client: httpx.AsyncClient, name: str, verb: str) -> None:
    await open_tag(client)
    over = await refused(client, 422, f"/api/experiment/{verb}", **idea(agent=name))
    await refused(client, 422, "/api/trace/select", tag="mar11", agent=name)
    await refused(client, 422, "/api/agent/announce", tag="mar11", agent=name, state="working")
    assert [e["field"] for e in over["errors"]] == ["agent"]
    assert (await told(client, "/api/experiment/history", tag="mar11"))["total"] == 0
