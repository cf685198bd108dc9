"""The connections of a process to Redis, through redis-py, and Redis' failures as our own errors.

Only what opens a connection imports this module: redis-py takes longer to import than a short command to run.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import redis.asyncio
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from state.errors import Invalid, Unavailable
from state.moves import Arg, Move, load, moves
from state.redis_urls import ASKED_S, owner_options, servers_of
from state.shared_connection import SharedConnection, hear, is_elsewhere

CONNECTIONS = 256
"""Most connections of one process, the shared one aside. Further calls wait for a free one."""


class Connection:
    """One connection that all calls share, and more for calls that wait in Redis or need it for themselves."""

    def __init__(self, url: str, timeout_s: float, key: str) -> None:
        """`key` is any key of the lab: in a Cluster its owner is the node to connect to."""
        self._timeout_s = timeout_s
        self._redis, self._sentinels = _connect(url, timeout_s, key)
        self._pipe = SharedConnection(self._redis.connection_pool, timeout_s)
        self._presented: dict[Any, Any] = dict(self._redis.response_callbacks)
        """By command: what a reply means. Names of commands are in capitals."""

    async def command(self, *words: Arg, **shape: bool) -> Any:
        """One command on the shared connection; `shape`: the reply's form in redis-py. Raises Unavailable."""
        try:
            (reply,) = await self._pipe.ask([words])
        except RedisError as problem:
            raise unavailable(problem) from problem
        if isinstance(reply, ResponseError):
            raise unavailable(reply) from reply
        present = self._presented.get(words[0])
        return reply if present is None else present(reply, **shape)

    async def make(self, move: Move, keys: Sequence[str], values: Sequence[str | bytes]) -> Any:
        """Run a script. Load it first if Redis does not know it."""
        try:
            return await self.command("EVALSHA", move.sha, len(keys), *keys, *values)
        except NoScriptError:
            return await self.command("EVAL", move.text, len(keys), *keys, *values)

    async def load_scripts(self) -> None:
        """Tell Redis every script that it does not know."""
        scripts = [load(name) for name in moves()]
        loaded = await self.command("SCRIPT", "EXISTS", *(script.sha for script in scripts))
        for script, known in zip(scripts, loaded, strict=True):
            if not known:
                await self.command("SCRIPT", "LOAD", script.text)

    async def pipeline(self, commands: Sequence[Sequence[Arg]], *, again: bool = True) -> list[Any]:
        """Several reads in one round trip; `again` where Redis has forgotten a script."""
        try:
            replies = await self._pipe.ask(commands) if commands else []
        except RedisError as problem:
            raise unavailable(problem) from problem
        presented = self._presented
        for place, words in enumerate(commands):  # no call for each: a request has twenty
            if isinstance(reply := replies[place], ResponseError):
                if again and isinstance(reply, NoScriptError):
                    await self.load_scripts()
                    return await self.pipeline(commands, again=False)
                raise unavailable(reply) from reply
            if (present := presented.get(words[0])) is not None:
                replies[place] = present(reply)
        return replies

    async def if_told(self, *words: Arg) -> Any:
        """The answer of a command that a managed Redis may not know, or forbid; None where it does."""
        try:
            return await self.command(*words)
        except ResponseError:
            return None
        except Unavailable as problem:
            if problem.fields.get("forbidden"):
                return None
            raise

    async def raw(self, words: Sequence[str]) -> Any:
        """A command that a person typed. Raises Invalid: Redis refuses it, in its own words."""
        try:
            return await self.alone(words, self._timeout_s)
        except ResponseError as problem:
            raise Invalid(f"Redis: {problem}") from problem

    async def alone(self, words: Sequence[Arg], within_s: float, **options: bool) -> Any:
        """One command on a connection of its own."""
        try:
            async with asyncio.timeout(within_s):
                return await self._redis.execute_command(*words, **options)  # type: ignore[no-untyped-call]
        except TimeoutError as problem:
            raise unavailable(exceptions.TimeoutError("no reply in time")) from problem
        except RedisError as problem:
            raise unavailable(problem) from problem

    async def hear(self, channels: str, heard: Callable[[str, str], None]) -> NoReturn:
        """Call `heard` with channel and message on those of a pattern. Raises RedisError: the connection is lost."""
        made = self._redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        await hear(made, channels, heard, self._timeout_s)

    async def close(self) -> None:
        await self._pipe.close()
        for client in (self._redis, *self._sentinels):
            await client.aclose()


def _connect(
    url: str, timeout_s: float, key: str
) -> tuple[redis.asyncio.Redis, Sequence[redis.asyncio.Redis]]:
    """A client of the Redis, and the clients of its Sentinels."""
    options = {
        "decode_responses": True,
        "protocol": 2,
        "socket_timeout": None,
        "socket_connect_timeout": 5.0,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "max_connections": CONNECTIONS,
        **connection_options(url),
    }
    if (found := servers_of(url)) is None:
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, timeout=timeout_s, **options)
        return redis.asyncio.Redis.from_pool(pool), ()
    if found.service is None:
        pool = redis.asyncio.BlockingConnectionPool(
            timeout=timeout_s, **{**owner_options(found, key), **options}
        )
        return redis.asyncio.Redis.from_pool(pool), ()
    sentinel = Sentinel(found.addresses, socket_timeout=ASKED_S)  # type: ignore[no-untyped-call]
    primary = SentinelConnectionPool(found.service, sentinel, **{**found.options, **options})  # type: ignore[no-untyped-call]
    return redis.asyncio.Redis.from_pool(primary), sentinel.sentinels


_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPALIVE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Half a minute until the kernel calls a silent host dead; each system knows some of these names."""


def connection_options(url: str) -> dict[str, Any]:
    """Options of a connection to `url`. TCP keepalive notices a host that disappeared.

    It does not send its library's name (CLIENT SETINFO): before Redis 7.2 no user can be given that right alone.
    """
    if url.startswith("unix:"):
        return {"driver_info": None}
    known = {getattr(socket, name): value for name, value in _KEEPALIVE.items() if hasattr(socket, name)}
    return {"driver_info": None, "socket_keepalive": True, "socket_keepalive_options": known}


_REFUSALS = {
    "BUSY": ("Redis is busy with a script", "try again in a moment"),
    "CLUSTERDOWN": (
        "the Redis cluster is down",
        "see CLUSTER INFO; it serves again when its slots are covered",
    ),
    "LOADING": ("Redis is busy starting", "try again in a moment"),
    "MASTERDOWN": ("Redis is a replica that lost its primary", "point NIGHTJAR_REDIS_URL at the primary"),
    "MISCONF": ("Redis cannot write to its disk", "it may be full: see Redis' log; nothing was written"),
    "MOVED": (
        "another node of the Redis cluster has these keys",
        "try again in a moment. For a Cluster NIGHTJAR_REDIS_URL is redis+cluster://HOST:PORT,HOST:PORT, and "
        "NIGHTJAR_BROKER_URL names a plain Redis for RQ",
    ),
    "NOREPLICAS": ("Redis has too few replicas to accept a write", "bring them back; nothing was written"),
    "TRYAGAIN": ("Redis is moving keys between its nodes", "try again in a moment"),
    "UNBLOCKED": ("Redis has become a replica", "try again in a moment"),
}
"""Error codes of a Redis that works but cannot serve now: the meaning and the remedy."""


def unavailable(problem: RedisError) -> Unavailable:
    """The error for people, with the remedy. A fault of the command itself is raised."""
    match problem:
        case exceptions.AuthenticationError() | exceptions.AuthorizationError():
            return Unavailable(
                "Redis refuses our password", hint="correct the password in NIGHTJAR_REDIS_URL"
            )
        case exceptions.NoPermissionError():
            return _forbidden(problem)
        case ResponseError() if any(words in str(problem) for words in _FORBIDDEN_IN_SCRIPTS):
            return _forbidden(problem)
        case exceptions.TimeoutError():
            detail, hint = "Redis did not answer in time", "try again; ./nightjar status shows the lab"
        case exceptions.BusyLoadingError():
            detail, hint = _REFUSALS["LOADING"]
        case exceptions.ConnectionError() if "No connection available" in str(problem):
            detail, hint = f"all {CONNECTIONS} connections to Redis are in use", "try again in a moment"
        case exceptions.ConnectionError() if "max number of clients" in str(problem):
            detail, hint = "Redis takes no more clients", "raise its maxclients, or end other clients of it"
        case exceptions.ConnectionError() if (refusal := _tls_refusal(problem)) is not None:
            return refusal
        case exceptions.ConnectionError():
            detail, hint = (
                "Redis cannot be reached",
                "it may be restarting: try again; else start ./nightjar up",
            )
        case exceptions.ReadOnlyError():
            detail, hint = "Redis is a read-only replica", "point NIGHTJAR_REDIS_URL at the primary"
        case exceptions.OutOfMemoryError():
            detail, hint = "Redis has no memory left", "raise maxmemory; nothing was written"
        case ResponseError() if "OOM command" in str(problem):
            detail, hint = "Redis has no memory left", "raise maxmemory; nothing was written"
        case exceptions.MasterDownError():
            detail, hint = _REFUSALS["MASTERDOWN"]
        case exceptions.ClusterDownError():
            detail, hint = _REFUSALS["CLUSTERDOWN"]
        case ResponseError() if "while the cluster is down" in str(problem):  # a script without keys
            detail, hint = _REFUSALS["CLUSTERDOWN"]
        case ResponseError() if is_elsewhere(problem):
            detail, hint = _REFUSALS["MOVED"]
        case exceptions.TryAgainError() | exceptions.AskError():
            detail, hint = _REFUSALS["TRYAGAIN"]
        case ResponseError() if "cluster support disabled" in str(problem):
            return Unavailable("this Redis is no Cluster", hint="name it with redis:// in NIGHTJAR_REDIS_URL")
        case ResponseError() if (code := _code(problem)) in _REFUSALS:
            detail, hint = _REFUSALS[code]
        case _:
            raise problem
    refusal = Unavailable(detail, hint=hint, retry_after=2.0)
    refusal.nothing_done = isinstance(problem, ResponseError)
    return refusal


def _tls_refusal(problem: BaseException) -> Unavailable | None:
    """The error of a failed TLS handshake that a retry does not mend."""
    cause: BaseException | None = problem
    while cause is not None:
        match cause:
            case ssl.SSLCertVerificationError():
                return Unavailable(
                    f"Redis' certificate is not to be trusted: {cause.verify_message}",
                    hint="name the CA that signed it in NIGHTJAR_REDIS_URL (?ssl_ca_certs=/path/ca.pem), "
                    "and the host as the certificate does",
                )
            case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ssl.SSLSyscallError():
                return None  # a server that ends does this too
            case ssl.SSLError():
                return Unavailable(
                    f"there is no TLS with Redis: {cause.reason or cause}",
                    hint="is it its TLS port, and does ssl_ca_certs name a file in PEM format?",
                )
        cause = cause.__cause__ or cause.__context__
    return None


_FORBIDDEN_IN_SCRIPTS = ("ACL failure in script", "The user executing the script can't")
"""Words of Redis since 7.2, and of earlier ones."""


def _forbidden(problem: RedisError) -> Unavailable:
    """Asking again does not help: the operator has to."""
    return Unavailable(
        "Redis' user may not do this",
        hint=f"./nightjar redis acl prints the rights that each user needs; Redis said: {problem}",
        fields={"forbidden": True},
    )


def _code(problem: RedisError) -> str:
    """The word in capitals before Redis' text."""
    return str(problem).partition(" ")[0]
