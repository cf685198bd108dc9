"""A night of agents: each gets a clone and its own token, is kept at work, and loses the token at the end."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from functions.formats.agent_output import Usage
from functions.kernel.process.redaction import hide
from functions.kernel.process.running import launcher
from state.errors import Conflict, Forbidden, Invalid, NightjarError, Unauthenticated
from state.settings import Settings, own_environment
from triggers.agents.keeper import AgentOrders, KeptAgent, Patience
from triggers.agents.place import AgentFolder, git
from triggers.cli.lab_http import LabHttp, bearer_of
from triggers.cli.output import ERROR, OK

TOKEN_S = 7 * 86400.0
"""Lifetime of a token in seconds, in case we are killed before we revoke it."""

Say = Callable[[str], None]


def night(
    settings: Settings,
    *,
    tag: str,
    names: Sequence[str],
    repo: Path,
    command: Sequence[str],
    patience: Patience,
    say: Say,
) -> int:
    """Keep these agents at work until their night is over; the exit code. Raises NightjarError: it cannot begin."""
    if (program := shutil.which(command[0])) is None:
        raise Invalid(
            f"there is no command {command[0]!r}", hint="install it, or write its whole path after --"
        )
    command = [str(Path(program).absolute()), *command[1:]]  # the agents work in other folders
    http = LabHttp(settings)
    role = http.ask("GET", "/api/token/whoami")["role"]
    if role not in ("agent", "operator", "local"):
        raise Forbidden(f"this token is a {role}'s", hint="agents need an agent's or an operator's token")
    base = _base_of(http, tag, repo)
    homes = settings.data_dir / "agents" / tag
    with ExitStack() as held:
        places = [AgentFolder(homes / name, tag, name) for name in names]
        for place in places:
            held.enter_context(place.locked())
            place.prepare(repo, base)
        tokens = [held.enter_context(agent_token(http, settings, tag, name)) for name in names]
        orders = AgentOrders(command, http.url, launcher(), _environment(), patience)
        agents = [
            KeptAgent(place, orders, token, lambda path, body: http.ask("POST", f"/api/{path}", body), say)
            for place, token in zip(places, tokens, strict=True)
        ]
        say(f"{', '.join(names)} on {tag}; logs: {homes}/*/log (Ctrl-C ends them)")
        reasons = asyncio.run(_kept(agents, say))
    for agent in agents:
        say(_summary(agent))
    return ERROR if all(reason.startswith("given up") for reason in reasons) else OK


async def _kept(agents: Sequence[KeptAgent], say: Say) -> list[str]:
    """The reasons why the agents' nights were over."""
    tasks = [asyncio.create_task(_told(agent, say)) for agent in agents]
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        if not stopping.is_set():  # once: a second Ctrl-C would cut off the end of the first
            say("ending the agents ...")
            for task in tasks:
                task.cancel()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    for one in ended:
        if isinstance(one, BaseException) and not isinstance(one, asyncio.CancelledError):
            raise one
    return [one if isinstance(one, str) else "ended" for one in ended]


async def _told(agent: KeptAgent, say: Say) -> str:
    why = await agent.keep()
    say(f"{agent.place.name}: {why}")
    return why


def _base_of(http: LabHttp, tag: str, repo: Path) -> str:
    """The tag's base commit; a tag that does not exist begins at the repository's HEAD."""
    head = git(repo, "rev-parse", "HEAD")
    try:
        opened = http.ask("POST", "/api/experiment/setup", {"tag": tag, "base_commit": head})["tag"]
    except Conflict as exists:
        problem = exists.fields.get("problem")
        opened = problem.get("existing") if isinstance(problem, dict) else None
        if opened is None:
            raise
    base: str | None = opened["base_commit"]
    return base or head


@contextmanager
def agent_token(http: LabHttp, settings: Settings, tag: str, name: str) -> Iterator[str | None]:
    """A token for this agent and tag alone, revoked at the end; our own if we are an agent. None in an open lab."""
    role = http.ask("GET", "/api/token/whoami")["role"]
    if role == "agent":
        own = bearer_of(settings)
        yield None if own is None else own.text
        return
    if role == "local" or _is_open(settings):
        yield None
        return
    issued = _issued(http, tag, name)
    hide(issued["token"])
    try:
        yield issued["token"]
    finally:
        with contextlib.suppress(NightjarError):
            http.ask("POST", "/api/token/revoke", {"id": issued["id"]})


def _is_open(settings: Settings) -> bool:
    """Whether agents on this machine need no token."""
    try:
        LabHttp(settings, anonymous=True).ask("GET", "/api/token/whoami")
    except Unauthenticated:
        return False
    return True


def _issued(http: LabHttp, tag: str, name: str) -> dict[str, Any]:
    """A new token, named after the tag and the agent. Tokens left by a killed `nightjar agent` are revoked."""
    bearer = f"{tag}-{name}"
    left = [
        token
        for token in http.ask("POST", "/api/token/list", {})["tokens"]
        if token["name"] == bearer and token["tags"] == [tag] and token["status"] == "active"
    ]
    for token in left:
        http.ask("POST", "/api/token/revoke", {"id": token["id"]})
    body = {"name": bearer, "role": "agent", "tags": [tag], "lasts_s": TOKEN_S}
    issued: dict[str, Any] = http.ask("POST", "/api/token/issue", body)
    return issued


def _environment() -> dict[str, str]:
    """The environment of agents: ours, without the lab's variables."""
    return {name: value for name, value in own_environment().items() if not name.startswith("NIGHTJAR_")}


def _summary(agent: KeptAgent) -> str:
    """One line on what an agent has done and used."""
    standing = agent.standing
    limits = f", {standing.limits} usage limits met" if standing.limits else ""
    return (
        f"{agent.place.name}: {len(standing.experiments)} experiments seen, {standing.starts} starts"
        f"{limits}{used(standing.usage)}"
    )


def used(usage: Usage) -> str:
    """Tokens and cost in words; empty where the agent's tool does not print them."""
    tokens = f", {usage.tokens:,} tokens" if usage.tokens is not None else ""
    return tokens + (f", {usage.cost_usd:.2f} USD" if usage.cost_usd is not None else "")
