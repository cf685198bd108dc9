"""function::calls: how often each function was called, in this web process and in the others."""

from __future__ import annotations

import time

import httpx

from functions.kernel.process.lifecycle import Process
from functions.kernel.process.meters import Meters
from state.presence import Tallies
from tests.labs import open_tag, refused, told


async def test_calls_and_refusals_are_counted(client: httpx.AsyncClient, process: Process) -> None:
    clock = Meters("clock")
    clock.begun("pool::sweep")
    clock.called("pool::sweep", "cron", "ok", 0.1)
    await clock.hand_over(Tallies(process.lab))
    await open_tag(client)
    began = time.time()
    await told(client, "/api/report/summary", tag="mar11")
    await refused(client, 404, "/api/report/summary", tag="nothing")

    found = (await told(client, "/api/function/calls"))["functions"]

    assert (found["report::summary"]["calls"], found["report::summary"]["errors"]) == (2, 1)
    assert began <= found["report::summary"]["last_at"] <= time.time()
    assert (found["pool::sweep"]["calls"], found["pool::sweep"]["errors"]) == (1, 0)
    assert began - 60 <= found["pool::sweep"]["last_at"] <= time.time()
    assert "report::night" not in found
