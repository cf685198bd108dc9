"""The address that the web process listens on: open to other machines only where callers need tokens."""

from __future__ import annotations

import ipaddress

from state.errors import Invalid
from state.settings import Settings
from state.tokens import Tokens


async def check_bind(settings: Settings, tokens: Tokens) -> None:
    """Refuse an address that strangers can reach before the lab has a token: nobody could call it from elsewhere.

    Raises:
        Invalid: the host is not a loopback address.
    """
    if not is_loopback(settings.host) and not await tokens.are_configured():
        raise Invalid(
            f"refusing to listen on {settings.host!r} without a token: other machines could reach the lab",
            hint="issue the first one, then start again: ./nightjar token issue NAME --role operator --direct"
            f"{settings.options}; or keep NIGHTJAR_HOST=127.0.0.1 and use an SSH tunnel:"
            " ssh -L 3111:127.0.0.1:3111 HOST",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
