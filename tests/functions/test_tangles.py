"""Traces that cross: modes that change under way, merges that come too late, bases that fall, other hardware."""

from __future__ import annotations

import httpx

from tests.functions.test_branching import complete, experiment, listed, multi
from tests.functions.test_traces import audited, grown, made
from tests.labs import told

TAG = "mar11"


# -- merges


async def test_a_merge_that_is_a_leaf_beside_its_trace_ends_no_other(client: httpx.AsyncClient) -> None:
    await multi(client, max_inflight_per_trace=2)
    await grown(client, 1.0)
    await grown(client, 1.1)
    merge = await made(client, await told(client, "/api/trace/merge", tag=TAG))
    await grown(client, 1.05, trace_id="mar11-t1")

    verdict = await complete(client, merge, 0.9)

    assert verdict["status"] == "keep"
    assert (await experiment(client, merge))["forked"] is True
    assert [t["status"] for t in (await listed(client)).values()] == ["live", "live"]
    assert await audited(client) == []


async def test_a_merge_into_a_trace_that_was_closed_meanwhile_ends_no_other(
    client: httpx.AsyncClient,
) -> None:
    await multi(client)
    await grown(client, 1.0)
    await grown(client, 1.1)
    merge = await made(client, await told(client, "/api/trace/merge", tag=TAG))
    await told(client, "/api/trace/close", tag=TAG, trace_id="mar11-t1")

    await complete(client, merge, 0.9)

    assert [t["status"] for t in (await listed(client)).values()] == ["closed", "live"]
    assert await audited(client) == []
