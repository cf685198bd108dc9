"""token::issue lets somebody in."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from functions.contract import Call, Command, Response, function
from state.ids import Id
from state.ids import Tag as TagName
from state.records import Role, stamp
from state.token_values import Issued, Kind
from state.tokens import Tokens

Lasting = Annotated[
    float, Field(gt=0, le=10 * 365 * 86400, description="seconds until it ends", examples=[86400])
]


class Issue(Command):
    name: Id = Field(description="who will bear it; what it begins is under this name", examples=["agent-1"])
    role: Role = Field(description="what it may do", examples=["agent"])
    kind: Kind = Field("access", description="enroll: it opens nothing but token::enroll")
    tags: list[TagName] | None = Field(
        None, min_length=1, max_length=100, description="an agent's tags; default: all", examples=[["mar11"]]
    )
    lasts_s: Lasting | None = None
    uses: int | None = Field(
        None, ge=1, le=1_000_000, description="of an enroll token; default: any number", examples=[1]
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.tags is not None and self.role != "agent":
            raise ValueError("tags are for agents: viewers read, and operators act on, all of them")
        if self.kind == "access" and self.uses is not None:
            raise ValueError("uses are for enroll tokens")
        if self.kind == "enroll" and self.role not in ("agent", "worker"):
            raise ValueError("only agents and workers enroll")
        if self.kind == "enroll" and self.uses is None and self.lasts_s is None:
            raise ValueError("an enroll token has uses, or ends: send uses or lasts_s")
        return self


class Shown(Response):
    id: str
    name: str
    role: str
    kind: Kind
    tags: list[str] | None
    expires_at: str | None
    token: str
    """Sent as `Authorization: Bearer`; it is shown here and never again."""


@function("token::issue", role="operator", writes=True, keeps_answer=False)
async def issue(request: Issue, call: Call, tokens: Tokens) -> Shown:
    """Issue a token, shown this once; the first is an operator's, and from then on every call needs one."""
    return shown(
        await tokens.issue(
            name=request.name,
            role=request.role,
            kind=request.kind,
            tags=request.tags,
            lasts_s=request.lasts_s,
            uses=request.uses,
            issued_by=call.caller.name,
        )
    )


def shown(issued: Issued) -> Shown:
    """A token as its owner sees it."""
    token = issued.token
    return Shown(
        id=token.id,
        name=token.name,
        role=token.role,
        kind=token.kind,
        tags=token.tags,
        expires_at=stamp(token.expires_at) if token.expires_at is not None else None,
        token=issued.text,
    )
