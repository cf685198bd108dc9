"""token::list shows who may call the lab."""

from __future__ import annotations

import builtins
from typing import Literal

from functions.contract import Request, Response, function
from state.records import stamp
from state.token_values import Kind
from state.tokens import Tokens


class ListTokens(Request):
    """Nothing to ask for."""


class TokenRow(Response):
    id: str
    name: str
    role: str
    kind: Kind
    status: Literal["active", "revoked", "expired"]
    tags: builtins.list[str] | None
    created_at: str
    issued_by: str
    expires_at: str | None
    rotated_at: str | None
    last_used_at: str | None
    uses_left: int | None
    enrolled_with: str | None


class TokenList(Response):
    tokens: builtins.list[TokenRow]


@function("token::list", role="operator")
async def list(request: ListTokens, tokens: Tokens) -> TokenList:
    """Every token with its owner, role and state, oldest first; never a secret."""
    used, now = await tokens.last_used(), await tokens.now()
    return TokenList(
        tokens=[
            TokenRow(
                id=t.id,
                name=t.name,
                role=t.role,
                kind=t.kind,
                status=t.end(now) or "active",
                tags=t.tags,
                created_at=stamp(t.created_at),
                issued_by=t.issued_by,
                expires_at=_stamp(t.expires_at),
                rotated_at=_stamp(t.rotated_at),
                last_used_at=_stamp(used.get(t.id)),
                uses_left=t.uses_left,
                enrolled_with=t.enrolled_with,
            )
            for t in await tokens.all()
        ]
    )


def _stamp(seconds: float | None) -> str | None:
    return stamp(seconds) if seconds is not None else None
