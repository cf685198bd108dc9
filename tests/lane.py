"""A worker's lane in a test's own process: asks the lab for a run over HTTP, and has a runner train it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from functions.kernel.process.remote import Remote
from tests.labs import told
from workers.attempt.job import Runner, attempted
from workers.lab_client import RemoteLab, Spool
from workers.trainer import CALLED, RemoteLease, job_of


def lab_over(http: httpx.AsyncClient, functions: tuple[str, ...]) -> RemoteLab:
    """The lab behind a test's client."""
    return RemoteLab(Remote(url="http://lab", name="far"), functions, http)


async def trained(
    http: httpx.AsyncClient, runner: Runner, *, lease_s: float = 60.0, **changes: Any
) -> str | None:
    """The outcome of the run that the lab has for the runner's GPU, with `changes` of the work; None: it has none."""
    work = (await told(http, "/api/pool/next", gpu_id=runner.gpu_id, timeout=0))["work"]
    if work is None:
        return None
    job = job_of(work | changes)
    with TemporaryDirectory() as folder:
        lease = RemoteLease(
            lab_over(http, CALLED), runner.gpu_id, job, Spool(Path(folder)), lease_s=lease_s, every_s=0.0
        )
        return await attempted(job, lease, runner, str(work["metric"]))
