"""Files that no other user may read, and the local keys of a lab, which are such files.

Who can read a key is the operator, or a worker, of the web process of this data directory.

<data>/operator.key           of the lab that is named `lab`; mode 0600
<data>/worker.key             of its own workers: only this key speaks for their slots
<data>/operator-<name>.key    of a lab with another name on the same data directory

A key has the form of a token, so it is redacted as tokens are. No token has its id, and Redis does not hold it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from state.client_settings import ClientSettings
from state.errors import Unauthenticated
from state.ids import KEY_IDS, token_id_in


@contextlib.contextmanager
def private_file(path: Path, *, once: bool = False, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A file that appears when it is whole and on the disk. Only its owner may read it, unless `mode` lets others.

    With `once`, an existing file stays, also one that another process makes at the same time.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if once:
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        else:
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_private(path: Path, text: str, *, once: bool = False) -> None:
    with private_file(path, once=once) as file:
        file.write(f"{text}\n".encode())


def sync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


KeyRole = Literal["operator", "worker"]
KEY_ROLES: tuple[KeyRole, ...] = get_args(KeyRole)


def key_file(settings: ClientSettings, role: KeyRole = "operator") -> Path:
    return settings.own_file(f"{role}.key")


def made_key(settings: ClientSettings, role: KeyRole = "operator") -> str:
    """A key of this lab, made if it is missing; all web processes of a data directory share it.

    Raises:
        Unavailable: the data directory cannot be used. Unauthenticated: as `read_key`.
    """
    found = read_key(settings, role)
    if found is None:
        from state.embedded import make_data_dir  # both import much that commands do without
        from state.token_values import new_secret

        make_data_dir(settings.data_dir)
        write_private(key_file(settings, role), f"nj_{KEY_IDS[role]}_{new_secret()}", once=True)
        found = read_key(settings, role)
    assert found is not None
    return found


def read_key(settings: ClientSettings, role: KeyRole = "operator") -> str | None:
    """A key of this lab; None before its first web process. Raises Unauthenticated: others know it, or it is none."""
    path = key_file(settings, role)
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        raise _refused(path, f"cannot be read: {problem.strerror}") from problem
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise _refused(path, "is not your own file")
        if found.st_mode & 0o077:
            raise _refused(path, f"is open to others (mode {stat.S_IMODE(found.st_mode):04o})")
        text = os.read(file, 1000).decode(errors="replace").strip()
    finally:
        os.close(file)
    if token_id_in(text) != KEY_IDS[role]:
        raise _refused(path, "holds no key")
    return text


def _refused(path: Path, why: str) -> Unauthenticated:
    return Unauthenticated(
        f"{str(path)!r} {why}, so it is not used",
        hint=f"rm -f {shlex.quote(str(path))}; then start the lab again: it makes another key",
    )
