"""token::revoke ends a token, and what was registered with it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from pydantic import Field

from functions.kernel.contract import Command, Response, function
from functions.pool.rules.leases import broken
from state.decisions import BrokenLease
from state.errors import NotFound
from state.experiments import Experiments
from state.ids import Id
from state.leases import Holding
from state.pool import Pool
from state.records import Gpu, stamp
from state.token_values import Token
from state.tokens import Tokens


@dataclass(frozen=True)
class Stores:
    tokens: Tokens
    pool: Pool
    experiments: Experiments


# -- The GPUs of a revoked token leave the pool, whatever runs there.

REASON = "the token that registered it was revoked"


async def forget_gpus_of(owner: str, until: float, stores: Stores) -> list[str]:
    """Forget what `owner` registered before `until`; answers the ids. Experiments there are queued again, or end."""
    mine = [g for g in (await stores.pool.roster()).gpus if g.owner == owner and g.registered_at <= until]
    return [gpu.gpu_id for gpu in mine if await _forget(gpu, stores)]


async def _forget(gpu: Gpu, stores: Stores) -> bool:
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
async def revoke(request: Revoke, stores: Stores) -> Revoked:
    """End a token at once and for good: its calls, its sessions, and within two seconds its open streams.

    The GPUs of its owner leave the pool. If the answer is lost, repeat the call: it does the rest.
    """
    tokens = stores.tokens
    token = await _revoked(request.id, tokens)
    made = [t for t in await tokens.all() if t.enrolled_with == token.id] if request.descendants else []
    ended = [token, *[await _revoked(t.id, tokens) for t in made]]
    gpus = [
        gpu_id
        for one in ended
        if one.kind == "access"
        for gpu_id in await forget_gpus_of(one.name, one.revoked_at or 0.0, stores)
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
