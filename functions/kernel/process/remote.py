"""Options of a worker. Lab or swarm that it serves, with URL, token and the worker's own name."""

from __future__ import annotations

import fcntl
import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args
from urllib.parse import urlsplit

import click
import platformdirs
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from functions.kernel.process.process_identity import is_up
from state.client_settings import host_name
from state.errors import Conflict, Invalid, Unavailable
from state.private import read_key, write_private
from state.settings import Settings

# -- Options of `up` and of a worker: the Python that trains, and the isolation of its runs.

Isolation = Literal["auto", "none", "limits", "landlock", "bwrap"]


python_option = click.option(
    "--python",
    help="interpreter that trains [default: the project's .venv, its uv environment, the active one, Nightjar's own]",
)


def isolation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `isolation`, `network`, `data_dirs`, `hidden_data` and `link`."""
    options = (
        click.option(
            "--isolation",
            type=click.Choice(get_args(Isolation)),
            default="auto",
            help="how far runs are kept from this machine [default: the strongest that works here]",
        ),
        click.option(
            "--network", type=click.Choice(["on", "off"]), default="off", help="network for isolated runs"
        ),
        click.option(
            "--data-dir",
            "data_dirs",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            multiple=True,
            help="folder that isolated runs may read, too",
        ),
        click.option(
            "--hidden-data",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            help="folder of hidden splits, which only evaluators may read (docs/hidden-split.md)",
        ),
        click.option(
            "--link",
            "links",
            multiple=True,
            metavar="PATH",
            help="data of the project that no commit has, for runs (besides those in nightjar.toml)",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


# -- The lab that a worker serves: its URL, the worker's token or key, and the worker's own name.

Kind = TypeVar("Kind", bound="Remote")


class Remote(BaseModel):
    """URL of the lab, and the worker's name and token."""

    model_config = ConfigDict(frozen=True)
    file: ClassVar[str] = "remote.json"

    url: str
    token: SecretStr | None = None
    """None: an open lab on this machine."""
    name: str
    """The first part of its GPU ids; unique, because machines of different owners may have the same host name."""

    def save(self, data_dir: Path) -> None:
        """Keep it in the worker's data directory, for its owner alone."""
        data_dir.mkdir(parents=True, exist_ok=True)
        token = self.token.get_secret_value() if self.token else None
        write_private(data_dir / self.file, json.dumps({**self.model_dump(mode="json"), "token": token}))


def remembered(data_dir: Path, kind: type[Kind]) -> Kind | None:
    """The lab that this data directory's worker serves; None before its first start. Raises Invalid."""
    try:
        return kind.model_validate_json((data_dir / kind.file).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as problem:
        raise Invalid(
            f"{data_dir / kind.file} cannot be read", hint="remove it, and give --url and the token once more"
        ) from problem


def remote_of(data_dir: Path) -> Remote:
    """The same, for a process that needs one. Raises Invalid: there is none."""
    found = remembered(data_dir, Remote)
    if found is None:
        raise Invalid(f"there is no {data_dir / Remote.file}", hint="start the worker with --url and --token")
    return found


def served(settings: Settings, *, remote: bool) -> Remote:
    """The lab that a worker serves, `remote` or local. Raises Invalid: no remote lab. Unavailable: no web process."""
    if remote:
        return remote_of(settings.data_dir)
    key, url = read_key(settings, "worker"), settings.written_by_web.get("url")
    if key is None or url is None or not is_up(settings):
        raise Unavailable(
            f"no web process of a lab runs on {settings.data_dir}",
            hint="start the lab there with ./nightjar up, or name the lab with --url and --token",
            retry_after=1.0,
        )
    return Remote(url=url, token=SecretStr(key), name=host_name())


@contextmanager
def alone_in(data_dir: Path) -> Iterator[None]:
    """Lock this data directory against other workers. Raises Conflict: there is one."""
    with (data_dir / "worker.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise Conflict(
                f"another worker runs with the data directory {data_dir}",
                hint="stop that one, or give this one a directory of its own: --data PATH",
            ) from problem
        yield


def place_of(url: str) -> str:
    """The name of the folder for what serves the lab at this URL."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", urlsplit(url).netloc)


def new_name() -> str:
    """A name for a worker on this machine, that no other has."""
    return f"{host_name()}-{secrets.token_hex(3)}"


# -- A worker's swarm: its URL, the worker's name, its train.py, and the baseline of that.


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


class JoinedSwarm(Remote):
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
    return (found.parent for found in sorted(root.glob(f"{host}/{worker_id or '*'}/{JoinedSwarm.file}")))


def place_to_join(url: str, worker_id: str) -> Path:
    """The data directory of a new worker."""
    return Path(platformdirs.user_state_dir("nightjar"), "swarm", place_of(url), worker_id)
