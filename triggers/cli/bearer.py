"""The token that the commands send: NIGHTJAR_TOKEN, else the operator's token kept in the data directory.

<data>/operator.token    written by `token issue --save`, sent only to this data directory's lab; mode 0600
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from dataclasses import dataclass, field
from pathlib import Path

from functions.process.redaction import hide
from state.errors import Unauthenticated
from state.ids import token_id_in
from state.private import write_private
from state.settings import Settings
from triggers.cli.address import is_own, is_up

FILE = "operator.token"


@dataclass(frozen=True)
class Bearer:
    text: str = field(repr=False)
    source: str


def bearer_of(settings: Settings) -> Bearer | None:
    """The token for the lab that the commands call; the kept one only while that is our own lab and is up.

    Raises:
        Unauthenticated: the text found is not a token, or others may have read it.
    """
    return given(settings) or (kept(settings) if is_own(settings) and is_up(settings) else None)


def given(settings: Settings) -> Bearer | None:
    """The token in NIGHTJAR_TOKEN.

    Raises:
        Unauthenticated: it is not a token.
    """
    text = settings.token.get_secret_value().strip() if settings.token is not None else ""
    return _checked(Bearer(text, "NIGHTJAR_TOKEN")) if text else None


def named(text: str, source: str) -> Bearer:
    """The token that `source`, an option, has.

    Raises:
        Unauthenticated: it is not a token.
    """
    return _checked(Bearer(text.strip(), source))


def kept(settings: Settings) -> Bearer | None:
    """The operator's token in the data directory.

    Raises:
        Unauthenticated: others may have read or written it, or it is not a token.
    """
    path = kept_at(settings)
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise Unauthenticated(
            f"{str(path)!r} cannot be read: {problem.strerror}",
            hint="it has to be your own file, not a link, written by ./nightjar token issue --save; else remove it",
        ) from problem
    try:
        _check_private(path, os.fstat(file), settings.options)
        return _checked(Bearer(os.read(file, 1000).decode(errors="replace").strip(), str(path)))
    finally:
        os.close(file)


def keep(settings: Settings, text: str) -> Path:
    """Write an operator's token to the data directory; returns the file's path."""
    path = kept_at(settings)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, text)
    return path


def forget(settings: Settings) -> None:
    """Remove the kept token."""
    kept_at(settings).unlink(missing_ok=True)


def is_kept(settings: Settings, token_id: str) -> bool:
    """Whether the kept token is this one."""
    with contextlib.suppress(Unauthenticated):
        found = kept(settings)
        return found is not None and token_id_in(found.text) == token_id
    return False


def kept_at(settings: Settings) -> Path:
    return settings.data_dir / FILE


def _check_private(path: Path, found: os.stat_result, options: str) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise Unauthenticated(
            f"{str(path)!r} is not your own file, so the token in it is not sent",
            hint="remove it, or set NIGHTJAR_TOKEN to a token of your own",
        )
    if found.st_mode & 0o077:
        raise Unauthenticated(
            f"{str(path)!r} is open to others (mode {stat.S_IMODE(found.st_mode):04o}), so it is not used",
            hint=f"chmod 600 {shlex.quote(str(path))}; if others may have read it, also:"
            f" ./nightjar token rotate --overlap 0{options}",
        )


def _checked(bearer: Bearer) -> Bearer:
    hide(bearer.text)
    if token_id_in(bearer.text) is None:
        raise Unauthenticated(
            f"the text in {bearer.source} is not a token", hint="a token is nj_, its id, _ and its secret"
        )
    return bearer
