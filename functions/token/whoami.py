"""token::whoami says who is calling."""

from __future__ import annotations

from functions.contract import Call, Http, Request, Response, function


class ReadIdentity(Request):
    """Nothing to ask for."""


class Identity(Response):
    name: str
    role: str
    tags: list[str] | None
    token_id: str | None
    """None: the operator's key was sent, or nothing, to an open lab on its own machine."""


@function(
    "token::whoami",
    Http("GET", "/api/token/whoami"),
    Http("POST", "/api/token/whoami"),
    role=("viewer", "worker"),
)
async def whoami(request: ReadIdentity, call: Call) -> Identity:
    """The caller's name, role and tags."""
    caller = call.caller
    return Identity(
        name=caller.name,
        role=caller.role,
        tags=sorted(caller.tags) if caller.tags is not None else None,
        token_id=caller.token_id,
    )
