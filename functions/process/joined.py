"""A worker's swarm: its URL, the worker's name, its train.py, and the baseline of that."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import platformdirs
from pydantic import BaseModel, ConfigDict, Field

from functions.process.remote import Remote, place_of
from functions.process.worker_options import Isolation


class WorkerTerms(BaseModel):
    """Choices of a worker's owner, stated once."""

    model_config = ConfigDict(frozen=True)

    train_py: Path | None = None
    gpu_type: str | None = None
    """None: as its driver reports."""
    contact: str = ""
    tag: str | None = None
    gpu: str | None = None
    """`none`, or the index of a GPU; None: the first one, else the CPU."""
    python: str | None = None
    isolation: Isolation = "auto"
    network: bool = False
    data_dirs: tuple[Path, ...] = ()
    pass_env: tuple[str, ...] = ()


class Baseline(BaseModel):
    """Score of the unchanged train.py on this machine."""

    model_config = ConfigDict(frozen=True)

    val_bpb: float
    """The mean of its runs."""
    sigma: float | None = None
    """Standard deviation of its runs; None for fewer than two."""
    runs: int = 0
    """Number of measured runs; 0: its owner stated the value."""
    budget_s: float | None = None
    """Seconds of each; None: as long as the script likes."""
    project: str = ""
    """Digest of the files that ran."""


class Joined(Remote):
    """`url` is the lab's, `token` the worker's own, `name` its worker id."""

    file: ClassVar[str] = "joined.json"

    mark: str = Field(default_factory=lambda: secrets.token_hex(6))
    """Tells its processes from those of other workers on the machine."""
    terms: WorkerTerms = WorkerTerms()
    baseline: Baseline | None = None
    registered: dict[str, Any] | None = None
    """The body of its registration."""


def joined_places(url: str | None, worker_id: str | None) -> Iterator[Path]:
    """The data directories of this user's swarm workers: of this URL and this id, where they are given."""
    root = Path(platformdirs.user_state_dir("nightjar"), "swarm")
    host = "*" if url is None else place_of(url)
    return (found.parent for found in sorted(root.glob(f"{host}/{worker_id or '*'}/{Joined.file}")))


def place_to_join(url: str, worker_id: str) -> Path:
    """The data directory of a new worker."""
    return Path(platformdirs.user_state_dir("nightjar"), "swarm", place_of(url), worker_id)
