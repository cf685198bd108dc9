"""Who may call what: roles, the tags of an agent, and what is a caller's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from state.errors import Forbidden
from state.records import Experiment, Gpu, Role, Trace

Audience = Literal["anyone", Role]
"""Who may call a function; `anyone`: it checks by itself what it is given."""

EXPERIMENTS = ("experiment_id", "experiment_a", "experiment_b", "parent_id", "parent_ids")
"""Fields of a request that name experiments: an experiment's id is `<tag>-<number>`."""
TRACES = ("trace_id", "selection_id", "into", "sources")
"""Fields that name traces (`<tag>-t<number>`) and selections (`<tag>-s<number>`)."""


@dataclass(frozen=True)
class Caller:
    """Who calls."""

    name: str
    role: Role
    token_id: str | None = None
    """None: a process of Nightjar, or a caller on this machine while the lab has no tokens."""
    tags: frozenset[str] | None = None
    """The tags that an agent works on; None is all."""

    @property
    def owner(self) -> str | None:
        """The owner of every record that this caller makes; None: the records have no owner."""
        return self.name if self.token_id is not None else None

    @property
    def may_do_all(self) -> bool:
        return self.role == "operator"

    @property
    def is_stranger(self) -> bool:
        """Whether it has shown no token, at a function that is open to anyone, and is no operator without one."""
        return self.token_id is None and not self.may_do_all


LOCAL = Caller("local", "operator")
"""Any caller on this machine, while the lab has no tokens."""


def allows(audience: Iterable[Audience], role: Role) -> bool:
    """Whether a caller of `role` is meant: operators always are, and agents may read what viewers read."""
    meant = set(audience)
    return bool(meant & {"anyone", role}) or role == "operator" or (role == "agent" and "viewer" in meant)


def check_tags(caller: Caller, named: Mapping[str, object]) -> None:
    """Refuse an agent that names another's tag, or an experiment of one.

    Raises:
        Forbidden: it does.
    """
    if caller.tags is None or caller.may_do_all:
        return
    for tag in tags_of(named):
        if tag not in caller.tags:
            raise Forbidden(
                f"{caller.name!r} works on {', '.join(sorted(caller.tags))}, not on {tag!r}",
                hint="use one of your tags, or ask an operator for a token of that one",
            )


def tags_of(named: Mapping[str, object]) -> set[str]:
    """Every tag that the fields of a request name, by itself or by what it holds."""
    found = {tag} if isinstance(tag := named.get("tag"), str) else set[str]()
    for field in (*EXPERIMENTS, *TRACES):
        value = named.get(field)
        ids = value if isinstance(value, list) else [value]
        found |= {i.rpartition("-")[0] for i in ids if isinstance(i, str)}
    return found


def check_own(caller: Caller, owner: str | None, thing: str) -> None:
    """Refuse an agent what another agent began; what has no owner is open to all.

    Raises:
        Forbidden: it is another's.
    """
    if caller.may_do_all or owner is None or owner == caller.name:
        return
    raise Forbidden(
        f"{thing} is {owner!r}'s, not {caller.name!r}'s",
        hint="reading it is free; its owner or an operator goes on with it",
    )


def check_may_command(caller: Caller, command: str | None) -> None:
    """Refuse a command for workers unless an operator gives it.

    Raises:
        Forbidden: the caller is no operator.
    """
    if command is None or caller.may_do_all:
        return
    raise Forbidden(
        f"an evaluator command is run on every worker: only operators give one, and {caller.name!r} is {caller.role}",
        hint="leave evaluator_command out, or ask an operator to open the tag",
    )


def check_retractor(caller: Caller, e: Experiment) -> None:
    """Refuse an agent that takes back a result of another owner, or one without an owner.

    Raises:
        Forbidden: it is another's, or has no owner.
    """
    if e.owner is None:
        _check_operator(caller, e.experiment_id, "agents take back their own results")
    check_own(caller, e.owner, e.experiment_id)


def check_trace(caller: Caller, trace: Trace) -> None:
    """Refuse an agent that ends or reopens a trace that another owner has begun, or one without an owner.

    Raises:
        Forbidden: it is another's, or has no owner.
    """
    if trace.owner is None:
        _check_operator(caller, trace.trace_id, "agents close and reopen the traces that they began")
    check_own(caller, trace.owner, trace.trace_id)


def _check_operator(caller: Caller, thing: str, rule: str) -> None:
    if not caller.may_do_all:
        raise Forbidden(f"{thing} has no owner: {rule}", hint="ask an operator to do it")


def check_reporter(
    caller: Caller, e: Experiment, gpu: Gpu | None, attempt: int | None, fence: int | None
) -> None:
    """Refuse a result of an experiment that is not the caller's: an agent's own, or one that a worker's GPU runs.

    An agent speaks for what it trains itself, never for an attempt of a worker: any agent can read a lease.

    Raises:
        Forbidden: it is another's, or a worker does not name the lease that it speaks for.
    """
    if caller.role != "worker":
        check_own(caller, e.owner, e.experiment_id)
        if not caller.may_do_all and e.attempt > 0 and (attempt, fence) != (None, None):
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
    """Whether the caller registered it: a worker to serve the lab with it, an agent for itself."""
    return gpu is not None and gpu.owner == caller.name and gpu.of_agent == (caller.role == "agent")


def check_worker(caller: Caller, worker_id: str) -> None:
    """Refuse a worker of a swarm what is another's.

    Raises:
        Forbidden: the caller bears another name.
    """
    if caller.may_do_all or (caller.role == "worker" and caller.name == worker_id):
        return
    raise Forbidden(
        f"this is {worker_id!r}'s, not {caller.name!r}'s",
        hint="send the token that POST /register answered for this worker_id",
    )


def check_own_gpu(caller: Caller, gpu: Gpu | None, gpu_id: str) -> None:
    """Refuse a worker or an agent a GPU that it did not register itself.

    Raises:
        Forbidden: it is another's, or the lab's own.
    """
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
