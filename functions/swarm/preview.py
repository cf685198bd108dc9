"""swarm::preview shows the answer that /sync gives a worker."""

from __future__ import annotations

from functions.contract import Call, function
from functions.rules.access import check_tags
from functions.swarm._stores import Stores
from functions.swarm.sync import ReadSync, Synced, synced
from state.settings import Settings


@function("swarm::preview", role="viewer")
async def preview(request: ReadSync, call: Call, stores: Stores, settings: Settings) -> Synced:
    """The answer that a swarm's worker would get of /sync now, for other readers."""
    worker = await stores.swarms.known(request.worker_id)
    check_tags(call.caller, {"tag": worker.tag})
    return await synced(worker, call.lab_url(settings), stores)
