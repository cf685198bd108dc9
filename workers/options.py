"""The operator's options for training on this machine."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from workers.attempt.isolation import Tier


class WorkerOptions(BaseModel):
    """The repository, command and limits of every run of a worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repo: Path
    command: tuple[str, ...] | None = None
    python: Path | None = None
    tier: Tier = "limits"
    """See workers.attempt.isolation."""
    network: bool = False
    """Whether confined runs may use the network."""
    data_dirs: tuple[Path, ...] = ()
    """Further folders that confined runs may read."""
    links: tuple[str, ...] = ()
    """Data of the project that runs get beside the files of a commit."""
    pass_env: tuple[str, ...] = ()
    remote: bool = False
    """Whether it reaches its lab by HTTP alone; functions.process.remote says which."""
