"""A stand-in for a worker: it leases, starts and finishes queued experiments as one does, but trains nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from functions.formats.constants import read_constants
from functions.kernel.process.lifecycle import Process
from state.experiments import Experiments
from state.leases import GpuLease
from state.pool import Pool
from state.tags import Tags
from tests.labs import waiting

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
GPU = "box:0"

Score = Callable[[Mapping[str, object]], float]
"""The value of a script with these constants; an exception is a crash."""


class StandIn:
    """Builds each experiment's script from the stored patch alone, and scores its constants."""

    def __init__(
        self, process: Process, http: httpx.AsyncClient, clone: Path, score: Score, gpu: str
    ) -> None:
        self.scripts: dict[str, str] = {}
        """The script of each experiment, as a worker would have trained it."""
        self._lab = process.lab
        self._experiments = Experiments(process.lab)
        self._pool = Pool(process.lab)
        self._tags = Tags(process.lab)
        self._clone = clone
        self._score = score
        self._http = http
        self._gpu = gpu

    async def work(self, stop: asyncio.Event) -> None:
        """Finish whatever is queued, in order, until told to stop."""
        await self._post(
            "pool/register", {"gpu_id": self._gpu, "gpu_index": 0, "gpu_name": "H100", "vram_mb": 1024}
        )
        while not stop.is_set():
            for e in await waiting(self._lab):
                await self._train(e.experiment_id)
            await self._post("pool/heartbeat", {"gpu_id": self._gpu})
            await asyncio.sleep(0.05)

    async def _train(self, experiment_id: str) -> None:
        queued = await self._experiments.get(experiment_id)
        lease = await self._pool.lend(queued, [self._gpu], lease_s=60, stale_s=60)
        assert isinstance(lease, GpuLease), lease
        e = await self._experiments.get(experiment_id)
        begun = await self._experiments.start(
            e, attempt=e.attempt, fence=lease.fence, runner="stand-in:1:1", lease_s=60
        )
        assert begun
        tag = await self._tags.get(e.tag)
        assert tag.base_commit is not None
        script = build(self._clone, tag.base_commit, await self._experiments.patch(e) or b"")
        self.scripts[experiment_id] = script
        who = {"experiment_id": experiment_id, "attempt": e.attempt, "fence": lease.fence}
        try:
            value = self._score(read_constants(script))
        except Exception as problem:  # noqa: BLE001 a script may fail with anything
            await self._post("experiment/crash", {**who, "error": str(problem)})
        else:
            await self._post("experiment/complete", {**who, "val_bpb": value, "training_seconds": 0.1})
        await self._pool.release(self._gpu, experiment_id, lease.fence, proven=True)
        if e.baseline:  # a dispatcher lets in what has waited for it
            await self._tags.open_gate(e.tag, experiment_id)

    async def _post(self, path: str, body: Mapping[str, object]) -> None:
        response = await self._http.post(f"/api/{path}", json=dict(body))
        assert response.is_success, response.text


@asynccontextmanager
async def standing_in(
    process: Process, url: str, project: Path, score: Score, *, gpu: str = GPU, bearer: str | None = None
) -> AsyncIterator[StandIn]:
    """A stand-in at work, with a clone of its own that no agent ever touches; `bearer` is an operator's token."""
    clone = project.parent / "worker"
    if not clone.exists():
        git(project.parent, "clone", "--quiet", str(project), str(clone))
    stop = asyncio.Event()
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
        worker = StandIn(process, http, clone, score, gpu)
        task = asyncio.create_task(worker.work(stop))
        try:
            yield worker
        finally:
            stop.set()
            await task


def build(clone: Path, base: str, patch: bytes) -> str:
    """The script of a base commit with a patch; fails where it does not apply."""
    git(clone, "reset", "--quiet", "--hard", base)
    git(clone, "clean", "--quiet", "-d", "--force")
    if patch:
        git(clone, "apply", "--binary", "-", stdin=patch)
    return (clone / "train.py").read_text()


def git(where: Path, *arguments: str, stdin: bytes = b"") -> str:
    """Output of a git command that has to succeed."""
    done = subprocess.run(
        ["git", "-C", str(where), *arguments], input=stdin, env=git_env(), capture_output=True, check=False
    )
    assert done.returncode == 0, (arguments, done.stderr.decode())
    return done.stdout.decode().strip()


def git_env() -> dict[str, str]:
    """Where git knows nobody but us."""
    someone = {"NAME": "tester", "EMAIL": "tester@example.invalid"}
    return {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        **{
            f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in someone.items()
        },
    }
