"""The token that the commands send: NIGHTJAR_TOKEN, else the operator's key of the data directory."""

from __future__ import annotations

from dataclasses import dataclass, field

from functions.process.redaction import hide
from state.client_settings import ClientSettings
from state.errors import Unauthenticated
from state.ids import token_id_in
from state.operator_key import key_file, read_key
from triggers.cli.address import base_url, is_here, is_own, is_up


@dataclass(frozen=True)
class Bearer:
    text: str = field(repr=False)
    source: str


def bearer_of(settings: ClientSettings) -> Bearer | None:
    """The token for the lab that the commands call; the key goes to the running web process of its directory alone.

    Raises:
        Unauthenticated: the text found is not a token, or others may have read the key.
    """
    if (found := given(settings)) is not None:
        return found
    if not (is_own(settings) and is_here(base_url(settings)) and is_up(settings)):
        return None
    key = read_key(settings)
    return None if key is None else _checked(Bearer(key, str(key_file(settings))))


def given(settings: ClientSettings) -> Bearer | None:
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


def _checked(bearer: Bearer) -> Bearer:
    hide(bearer.text)
    if token_id_in(bearer.text) is None:
        raise Unauthenticated(
            f"the text in {bearer.source} is not a token", hint="a token is nj_, its id, _ and its secret"
        )
    return bearer
