"""Tokens: issued, listed, rotated, and who one is by it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from functions.kernel.contract import Call, Command, Http, Request, Response, function
from functions.pool.rules.leases import broken
from state.decisions import BrokenLease
from state.errors import Conflict, Forbidden, Invalid, NotFound
from state.experiments import Experiments
from state.ids import Id
from state.ids import Tag as TagName
from state.leases import Holding
from state.pool import Pool
from state.quota import Quota, counting
from state.records import Gpu, Role, stamp, stamped, view_of
from state.settings import Settings
from state.token_values import Issued, Kind, Token
from state.tokens import CODE_S, OVERLAP_MOST_S, Tokens

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


class TokenView(Response):
    id: str
    name: str
    role: str
    kind: Kind
    tags: list[str] | None
    expires_at: str | None


class Shown(TokenView):
    token: str
    """Sent as `Authorization: Bearer`; it is shown here and never again."""


@function("token::issue", role="operator", writes=True, keeps_answer=False)
async def issue(request: Issue, call: Call, tokens: Tokens) -> Shown:
    """Issue a token, shown this once; the first is an operator's, and from then on every call needs one."""
    return shown(await tokens.issue(**request.model_dump(exclude={"request_id"}), issued_by=call.caller.name))


def shown(issued: Issued) -> Shown:
    token = issued.token
    return view_of(Shown, token, expires_at=stamped(token.expires_at), token=issued.text)


BODY_LIMIT = 4096
"""Bytes: strangers send it."""


class Enroll(Command):
    enroll_token: str = Field(
        max_length=200,
        description="what token::issue answered with kind=enroll",
        examples=["nj_mfrggzdfmz_..."],
    )
    name: Id = Field(description="the name of the new token's owner; a new one", examples=["agent-1"])


@function("token::enroll", role="anyone", writes=True, keeps_answer=False, body_limit=BODY_LIMIT)
async def enroll(request: Enroll, tokens: Tokens, settings: Settings) -> Shown:
    """Join with an enroll token: a token of your own, shown this once.

    The name is yours from then on. Where the answer is lost, so is the name: take another one, or ask an operator.
    """
    enrolling, proof = await tokens.recognise(request.enroll_token)
    if enrolling.kind != "enroll":
        raise Forbidden(
            "this is an access token: it opens the lab by itself", hint="send it as Authorization: Bearer"
        )
    await tokens.take(proof, settings.rate_per_s)
    with counting(Quota(enrolling.name, settings.stored_bytes_a_day)):
        return shown(await tokens.enroll(enrolling, request.name))


class Rotate(Command):
    id: Id | None = Field(
        None, description="default: the token that this is asked with", examples=["mfrggzdfmz"]
    )
    overlap_s: float = Field(
        300, ge=0, le=OVERLAP_MOST_S, description="seconds for which the present secret stays good"
    )


@function("token::rotate", role=("viewer", "worker"), writes=True, keeps_answer=False)
async def rotate(request: Rotate, call: Call, tokens: Tokens) -> Shown:
    """A new secret for a token, shown once; the one before stays valid for a while.

    Everybody may rotate their own token. If the answer is lost, ask again with the same token. With overlap_s=0, the
    secret before and all sessions made with it end at once.
    """
    asked = request.id or call.caller.token_id
    if asked is None:
        raise Invalid("no token was sent that could be rotated", hint="name one by its id")
    if asked != call.caller.token_id and not call.caller.may_do_all:
        raise Forbidden("only operators rotate other tokens", hint="leave out the id to rotate your own")
    return shown(await tokens.rotate(await tokens.get(asked), request.overlap_s, call.proof))


class TokenRow(TokenView):
    status: Literal["active", "revoked", "expired"]
    created_at: str
    issued_by: str
    rotated_at: str | None
    last_used_at: str | None
    uses_left: int | None
    enrolled_with: str | None


class TokenList(Response):
    tokens: list[TokenRow]


@function("token::list", role="operator")
async def list_tokens(request: Request, tokens: Tokens) -> TokenList:
    """Every token with its owner, role and state, oldest first; never a secret."""
    used, now = await tokens.last_used(), await tokens.now()
    return TokenList(
        tokens=[
            view_of(
                TokenRow,
                t,
                status=t.end(now) or "active",
                created_at=stamp(t.created_at),
                expires_at=stamped(t.expires_at),
                rotated_at=stamped(t.rotated_at),
                last_used_at=stamped(used.get(t.id)),
            )
            for t in await tokens.all()
        ]
    )


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
async def whoami(request: Request, call: Call) -> Identity:
    """The caller's name, role and tags."""
    caller = call.caller
    return Identity(
        name=caller.name,
        role=caller.role,
        tags=sorted(caller.tags) if caller.tags is not None else None,
        token_id=caller.token_id,
    )


class SignInCode(Response):
    code: str
    """For the page's address, behind `#sign-in=`: it opens one session, once."""
    expires_in_s: int


@function("token::sign_in", role=("viewer", "worker"), writes=True, keeps_answer=False)
async def sign_in(request: Command, call: Call, tokens: Tokens) -> SignInCode:
    """A code that signs one browser in as its caller, once, within 10 minutes."""
    if call.proof is None:
        raise Conflict("no token was sent, so there is nobody to sign in", hint=call.caller.remedy)
    return SignInCode(code=await tokens.open_code(call.proof), expires_in_s=CODE_S)


@dataclass(frozen=True)
class TokenStores:
    tokens: Tokens
    pool: Pool
    experiments: Experiments


# -- The GPUs of a revoked token leave the pool, whatever runs there.

REASON = "the token that registered it was revoked"


async def _forget(gpu: Gpu, stores: TokenStores) -> bool:
    """Forget a GPU; False: it is gone already. An experiment there is queued again, or ends."""
    with suppress(NotFound):  # another process has removed it
        while True:
            found = await stores.pool.deregister(gpu.gpu_id, reason=REASON, owner=gpu.owner)
            if found != "held":
                return found == "ok"
            await stores.experiments.break_lease(gpu.gpu_id, _gone)
    return False


def _gone(held: Holding) -> BrokenLease | None:
    if held.experiment is None or held.policy is None:
        return None
    most = held.policy.max_attempts
    return broken(held.gpu, held.experiment, "unproven", reason=REASON, max_attempts=most)


class Revoke(Command):
    id: Id = Field(description="the token's: token::list shows them", examples=["mfrggzdfmz"])
    descendants: bool = Field(
        False, description="of an enroll token: all that were made with it are revoked too", examples=[True]
    )


class Revoked(Response):
    id: str
    name: str
    revoked_at: str
    descendants: list[str]
    """Names of tokens that were made with it, if these were revoked too."""
    gpus: list[str]
    """GPUs that left the pool because they were registered with these tokens; what ran there waits again."""


@function("token::revoke", role="operator", writes=True)
async def revoke(request: Revoke, stores: TokenStores) -> Revoked:
    """End a token at once and for good: its calls, its sessions, and within two seconds its open streams.

    The GPUs of its owner leave the pool. If the answer is lost, repeat the call: it does the rest.
    """
    tokens = stores.tokens
    token = await _revoked(request.id, tokens)
    made = [t for t in await tokens.all() if t.enrolled_with == token.id] if request.descendants else []
    ended = [token, *[await _revoked(t.id, tokens) for t in made]]
    gpus = [
        gpu.gpu_id
        for one in ended
        if one.kind == "access"
        for gpu in (await stores.pool.roster())[1]
        if gpu.owner == one.name and gpu.registered_at <= (one.revoked_at or 0.0)
        if await _forget(gpu, stores)
    ]
    return Revoked(
        id=token.id,
        name=token.name,
        revoked_at=stamp(token.revoked_at or 0.0),
        descendants=[t.name for t in made],
        gpus=gpus,
    )


async def _revoked(token_id: str, tokens: Tokens) -> Token:
    return await tokens.revoke(await tokens.get(token_id))
