"""The lab that a worker without Redis serves: its URL, the worker's token and the worker's own name, in one file."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from state.errors import Conflict, Invalid
from state.settings import host_name

FILE = "remote.json"


class Remote(BaseModel):
    """Where the lab is, and as whom a worker speaks to it."""

    model_config = ConfigDict(frozen=True)

    url: str
    token: SecretStr | None = None
    """None: an open lab on this machine."""
    name: str
    """The first part of its GPU ids; unique, because machines of different owners may have the same host name."""

    def save(self, data_dir: Path) -> None:
        """Keep it in the worker's data directory, for its owner alone."""
        data_dir.mkdir(parents=True, exist_ok=True)
        said = {
            **self.model_dump(mode="json"),
            "token": self.token.get_secret_value() if self.token else None,
        }
        written = data_dir / f"{FILE}.new"
        descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(said, file)
            file.flush()
            os.fsync(file.fileno())
        written.replace(data_dir / FILE)


def remembered(data_dir: Path) -> Remote | None:
    """The lab that this data directory's worker serves; None before its first start.

    Raises:
        Invalid: the file is not as it was written.
    """
    try:
        return Remote.model_validate_json((data_dir / FILE).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as problem:
        raise Invalid(
            f"{data_dir / FILE} cannot be read", hint="remove it, and give --url and --token once more"
        ) from problem


def remote_of(data_dir: Path) -> Remote:
    """The same, where a worker's process cannot do without it.

    Raises:
        Invalid: there is none.
    """
    found = remembered(data_dir)
    if found is None:
        raise Invalid(f"there is no {data_dir / FILE}", hint="start the worker with --url and --token")
    return found


@contextmanager
def alone_in(data_dir: Path) -> Iterator[None]:
    """Keep other workers out of this data directory meanwhile.

    Raises:
        Conflict: there is one.
    """
    with (data_dir / "worker.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise Conflict(
                f"another worker runs with the data directory {data_dir}",
                hint="stop that one, or give this one a directory of its own: --data PATH",
            ) from problem
        yield


def new_name() -> str:
    """A name for a worker on this machine, that no other has."""
    return f"{host_name()}-{secrets.token_hex(3)}"
