"""Access rules: roles, the tags of an agent, and ownership."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from state.errors import Forbidden
from state.records import Experiment, Gpu, Role, Trace

CallerRole = Literal["local", Role]
"""`local`: agent, worker and viewer at once, for callers without a token in an open lab on this machine."""
Audience = Literal["anyone", CallerRole]
"""Who may call a function. `anyone`: the function checks its caller itself."""
HOLDS: Mapping[CallerRole, frozenset[Role]] = {
    "agent": frozenset({"agent", "viewer"}),
    "local": frozenset({"agent", "worker", "viewer"}),
}
"""Roles that a caller's role includes, where it includes more than itself."""

EXPERIMENTS = ("experiment_id", "experiment_a", "experiment_b", "parent_id", "parent_ids")
"""Fields of a request that name experiments: an experiment's id is `<tag>-<number>`."""
TRACES = ("trace_id", "selection_id", "into", "sources")
"""Fields that name traces (`<tag>-t<number>`) and selections (`<tag>-s<number>`)."""


@dataclass(frozen=True)
class Caller:
    name: str
    role: CallerRole
    token_id: str | None = None
    """None for a process of Nightjar, a key of the lab itself, or a caller without a token."""
    tags: frozenset[str] | None = None
    """Tags of an agent; None: all."""

    @property
    def owner(self) -> str | None:
        """Owner of the records that this caller makes; None: no owner."""
        return self.name if self.token_id is not None else None

    @property
    def may_do_all(self) -> bool:
        return self.role == "operator"

    @property
    def is_lab(self) -> bool:
        """Whether what it registers is the lab's own."""
        return self.may_do_all or self == OWN_WORKER

    @property
    def is_agent(self) -> bool:
        return self.role in ("agent", "local")

    @property
    def is_worker(self) -> bool:
        return self.role in ("worker", "local")

    @property
    def described(self) -> str:
        """The caller and its role, for a refusal."""
        return "no token was sent" if self == LOCAL else f"{self.name!r} is {self.role}"

    @property
    def remedy(self) -> str:
        """How this caller can get a role that it lacks."""
        if self == LOCAL:
            return (
                "./nightjar call sends the operator's key of its data directory; another program sends the text of"
                " operator.key there, as Authorization: Bearer"
            )
        if self == VISITOR:
            return "sign in: ./nightjar open, on the lab's machine, prints a link"
        return "ask an operator for a token of that role"


OPERATOR = Caller("operator", "operator")
"""The bearer of the operator's key."""
OWN_WORKER = Caller("lab", "worker")
"""The bearer of the key of the lab's own workers."""
LOCAL = Caller("local", "local")
"""A program on this machine that sends no token, while the lab is open."""
VISITOR = Caller("visitor", "viewer")
"""A browser on this machine without a sign-in, while the lab is open."""
STRANGER = Caller("anyone", "viewer")
"""An unknown caller of a function that is open to anyone."""


@cache
def allows(audience: tuple[Audience, ...], role: CallerRole) -> bool:
    """Whether a caller of `role` may call; operators always may."""
    return role == "operator" or not {"anyone", role, *HOLDS.get(role, ())}.isdisjoint(audience)


def check_tags(caller: Caller, named: Mapping[str, object]) -> None:
    """Refuse an agent that names another's tag, or an experiment of one. Raises Forbidden: it does."""
    if caller.tags is None or caller.may_do_all:
        return
    for tag in tags_of(named):
        if tag not in caller.tags:
            raise Forbidden(
                f"{caller.name!r} works on {', '.join(sorted(caller.tags))}, not on {tag!r}",
                hint="use one of your tags, or ask an operator for a token of that one",
            )


def tags_of(named: Mapping[str, object]) -> set[str]:
    """Every tag that a request names, by itself or in the id of an experiment, trace or selection."""
    found = {tag} if isinstance(tag := named.get("tag"), str) else set[str]()
    for field in (*EXPERIMENTS, *TRACES):
        value = named.get(field)
        ids = value if isinstance(value, list) else [value]
        found |= {i.rpartition("-")[0] for i in ids if isinstance(i, str)}
    return found


def check_own(caller: Caller, owner: str | None, thing: str) -> None:
    """Raise Forbidden for an agent at a thing of another owner; one without an owner is open to all."""
    if owner is None or owner == caller.name or caller.may_do_all:
        return
    raise Forbidden(
        f"{thing} is {owner!r}'s, not {caller.name!r}'s",
        hint="reading it is free; its owner or an operator goes on with it",
    )


def check_may_command(caller: Caller, command: str | None, name: str = "evaluator_command") -> None:
    """Raise Forbidden for a command for workers, unless an operator gives it."""
    if command is None or caller.may_do_all:
        return
    raise Forbidden(
        f"the command of {name} is run on every worker: only operators give one, and {caller.described}",
        hint=f"leave {name} out, or ask an operator to open the tag",
    )


def check_retractor(caller: Caller, e: Experiment) -> None:
    """Raise Forbidden for an agent with a token at a result of another owner, or of none."""
    if e.owner is None:
        _check_operator(caller, e.experiment_id, "agents take back their own results")
    check_own(caller, e.owner, e.experiment_id)


def check_trace(caller: Caller, trace: Trace) -> None:
    """Raise Forbidden for an agent with a token at a trace of another owner, or of none."""
    if trace.owner is None:
        _check_operator(caller, trace.trace_id, "agents close and reopen the traces that they began")
    check_own(caller, trace.owner, trace.trace_id)


def _check_operator(caller: Caller, thing: str, rule: str) -> None:
    if not caller.may_do_all and caller != LOCAL:  # what is made without a token has no owner
        raise Forbidden(f"{thing} has no owner: {rule}", hint="ask an operator to do it")


def check_reporter(
    caller: Caller, e: Experiment, gpu: Gpu | None, attempt: int | None, fence: int | None
) -> None:
    """Refuse a report on an experiment that the caller does not train.

    An agent reports on its own training, never on a worker's attempt: any agent can read a lease. A caller without a
    token counts as a worker if it names the lease of an attempt.

    Raises:
        Forbidden: it is another's, or a worker does not name the lease that it speaks for.
    """
    names_lease = e.attempt > 0 and (attempt, fence) != (None, None)
    if caller.role != "worker" and not (names_lease and caller.is_worker):
        check_own(caller, e.owner, e.experiment_id)
        if names_lease and not caller.may_do_all:
            raise Forbidden(
                f"attempt {e.attempt} of {e.experiment_id} is a worker's: its result is the worker's word",
                hint=f"wait for it with GET /api/experiment/{e.experiment_id}/wait, or stop it",
            )
        return
    check_own_gpu(caller, gpu, e.gpu_id or f"the GPU of {e.experiment_id}")
    if attempt is None or fence is None:
        raise Forbidden(
            "a worker's result names the lease that it was trained under",
            hint="send the attempt and the fence that came with the lease",
        )


def owns_gpu(caller: Caller, gpu: Gpu | None) -> bool:
    """Whether the caller registered it: a worker to serve the lab with it, an agent with a token for itself.

    The lab's own workers share a key, and so their GPUs.
    """
    if caller == OWN_WORKER:
        return gpu is not None and gpu.owner is None
    return gpu is not None and gpu.owner == caller.name and gpu.of_agent == (caller.role == "agent")


def check_worker(caller: Caller, worker_id: str) -> None:
    """Raise Forbidden for a swarm's worker at another's thing. In an open lab it may have no token."""
    if caller.may_do_all or caller == LOCAL or (caller.role == "worker" and caller.name == worker_id):
        return
    raise Forbidden(
        f"this is {worker_id!r}'s, not {caller.name!r}'s",
        hint="send the token that POST /register answered for this worker_id",
    )


def check_own_gpu(caller: Caller, gpu: Gpu | None, gpu_id: str) -> None:
    """Raise Forbidden for a worker or an agent at a GPU that it did not register itself."""
    if caller.may_do_all or owns_gpu(caller, gpu):
        return
    owner = gpu.owner if gpu is not None else None
    raise Forbidden(
        f"{gpu_id} was registered by {owner!r}, not by {caller.name!r}"
        if owner
        else f"{gpu_id} is one of the lab's own workers, not {caller.name!r}'s",
        hint="an agent speaks for the GPUs that it registered itself: register yours under another gpu_id"
        if caller.role == "agent"
        else "a worker speaks for the GPUs that it registered; POST /api/pool/deregister (operator) frees the id",
    )
