"""The connection to Redis: one lab's keys, its Lua scripts, and Redis' failures as our own errors."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio
from redis import exceptions
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from state.errors import Invalid, Unavailable
from state.keys import Keys
from state.moves import Arg, GivenArgs, GivenKeys, load, moves
from state.pipe import Pipe
from state.traceparent import current

SCHEMA = 3
"""Version of the data's layout; a lab of another version is refused."""

NOTHING: Mapping[str, str] = {}

CONNECTIONS = 256
"""Most connections of one process beside the shared one; a call that needs one more waits its turn."""


class Lab:
    """One lab's side of Redis: every key carries the hash tag `{<lab>}`, every write is one script.

    Nothing is retried here (a repeated write is a second write): callers' operations are idempotent instead.
    """

    def __init__(self, name: str, url: str, *, timeout_s: float = 5.0) -> None:
        self.name = name
        self.keys = Keys(name)
        self.url = url
        self.timeout_s = timeout_s
        """How long an answer may take before Redis counts as silent."""
        self.identity = ""
        """Random, made with the lab: tells labs of the same name apart. Known after `check`."""
        self._redis = _connect(url, timeout_s)
        self._pipe = Pipe(self._redis.connection_pool, timeout_s)
        self._presents: Mapping[str | bytes, Any] = self._redis.response_callbacks
        """How redis-py presents the replies of some commands, by name."""

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[Lab]:
        """The same lab on connections of its own: a write that Redis holds up holds up nothing else there."""
        lab = Lab(self.name, self.url, timeout_s=self.timeout_s)
        try:
            yield lab
        finally:
            await lab.close()

    def channel(self, kind: str) -> str:
        """The Pub/Sub channel of an event type, or a pattern of them."""
        return f"nightjar:{self.name}:{kind}"

    async def move(
        self,
        name: str,
        *,
        keys: GivenKeys = NOTHING,
        args: GivenArgs = NOTHING,
    ) -> Any:
        """Make the move `lua/<name>.lua` with the keys and values that its header declares; None is left out.

        Keys that the lab, or the tag that the value `tag` names, has only one of are given by themselves.

        The traceparent of the present call goes along, for the events that the script writes.

        Raises:
            TypeError: a name is missing, or is not declared. Unavailable: as `command`.
        """
        move = load(name)
        keyed, argv = move.words(self.keys, keys, {"traceparent": current.get(), **args})
        try:
            return await self.command("EVALSHA", move.sha, len(keyed), *keyed, *argv)
        except NoScriptError:
            return await self.command("EVAL", move.text, len(keyed), *keyed, *argv)

    def reading(
        self,
        name: str,
        *,
        keys: GivenKeys = NOTHING,
        args: GivenArgs = NOTHING,
    ) -> Sequence[Arg]:
        """The script `lua/<name>.lua`, which writes nothing, as one of the commands of a `pipeline`.

        Raises:
            TypeError: as `move`.
        """
        script = load(name)
        keyed, argv = script.words(self.keys, keys, args)
        return ("EVALSHA_RO", script.sha, len(keyed), *keyed, *argv)

    async def command(self, *words: Arg, **shape: bool) -> Any:
        """One Redis command, on the connection that all calls share; `shape` says how redis-py presents the reply.

        Raises:
            Unavailable: Redis does not answer, refuses us, or cannot write; see `unavailable`.
        """
        (reply,) = await self._replies([words])
        return self._presented(words[0], reply, **shape)

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Several reads in one round trip, those of `reading` too.

        Raises:
            Unavailable: as `command`.
        """
        replies = await self._replies(commands) if commands else []
        if any(isinstance(reply, NoScriptError) for reply in replies):
            await self._load_scripts()
            replies = await self._replies(commands)
        return [self._presented(words[0], reply) for words, reply in zip(commands, replies, strict=True)]

    async def _replies(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        try:
            return await self._pipe.ask(commands)
        except RedisError as problem:
            raise unavailable(problem) from problem

    def _presented(self, name: Arg, reply: Any, **shape: bool) -> Any:
        if isinstance(reply, ResponseError):
            raise unavailable(reply) from reply
        present = self._presents.get(name)  # type: ignore[arg-type]  # a name is a text
        return reply if present is None else present(reply, **shape)

    async def binary(self, *words: Arg) -> Any:
        """One command whose reply is bytes.

        Raises:
            Unavailable: as `command`.
        """
        return await self._alone(words, self.timeout_s, NEVER_DECODE=True)

    async def raw(self, words: Sequence[str]) -> Any:
        """A command that a person typed; what Redis refuses is answered in its own words.

        Raises:
            Invalid: Redis refuses it. Unavailable: Redis does not answer.
        """
        try:
            return await self._alone(words, self.timeout_s)
        except ResponseError as problem:
            raise Invalid(f"Redis: {problem}") from problem

    async def blocking(self, *words: Arg, wait_s: float) -> Any:
        """One command that waits in Redis, at most `wait_s`.

        Raises:
            Unavailable: as `command`; also when nothing at all comes back in time, as on a half-open connection.
        """
        return await self._alone(words, wait_s + self.timeout_s)

    async def _alone(self, words: Sequence[Arg], within_s: float, **options: bool) -> Any:
        """One command on a connection of its own."""
        try:
            async with asyncio.timeout(within_s):
                return await self._redis.execute_command(*words, **options)  # type: ignore[no-untyped-call]
        except TimeoutError as problem:
            raise unavailable(exceptions.TimeoutError("no reply in time")) from problem
        except RedisError as problem:
            raise unavailable(problem) from problem

    async def scan(self, pattern: str = "*") -> AsyncIterator[str]:
        """Every key of the lab whose name fits; for people who look, never on a request's path."""
        cursor = 0
        while True:
            cursor, keys = await self.command("SCAN", cursor, "MATCH", self.keys(pattern), "COUNT", 1000)
            for key in keys:
                yield key
            if int(cursor) == 0:
                return

    async def read(self, commands: Mapping[str, Sequence[Arg] | None]) -> dict[str, Any]:
        """Several reads in one round trip, by name; None is not asked, and its answer is None."""
        asked = {name: command for name, command in commands.items() if command is not None}
        answers = await self.pipeline(list(asked.values()))
        return dict.fromkeys(commands) | dict(zip(asked, answers, strict=True))

    async def hash(self, key: str) -> dict[str, str]:
        """All fields of a hash; empty where there is none."""
        answer: dict[str, str] = await self.command("HGETALL", key)
        return answer

    async def hashes(self, keys: Sequence[str]) -> list[dict[str, str]]:
        """Several hashes in one round trip."""
        return await self.pipeline([("HGETALL", key) for key in keys])

    async def now(self) -> float:
        """Redis' clock, in seconds since 1970."""
        return time_of(await self.command("TIME"))

    async def check(self) -> None:
        """Load every script and refuse a lab whose data has another layout than this code.

        Raises:
            Unavailable: Redis does not answer, or as `recognise`; or the lab is of an earlier schema.
        """
        await self._load_scripts()
        if (found := await self.recognise()) < SCHEMA:
            raise Unavailable(
                f"the lab {self.name!r} was written with schema {found}, this version reads {SCHEMA}",
                hint="./nightjar up brings it to this version's",
            )

    async def _load_scripts(self) -> None:
        scripts = [load(name) for name in moves()]
        loaded = await self.command("SCRIPT", "EXISTS", *(script.sha for script in scripts))
        for script, known in zip(scripts, loaded, strict=True):
            if not known:
                await self.command("SCRIPT", "LOAD", script.text)

    async def recognise(self) -> int:
        """The schema of the lab, which is made where there is none; remembers its identity.

        Raises:
            Unavailable: a newer version wrote it, it is only half restored, or it is no longer the lab that this
                process began with.
        """
        name = self.identity or secrets.token_hex(8)
        answer = await self.move("open_lab", args={"schema": SCHEMA, "identity": name})
        if answer[0] == "restoring":
            raise Unavailable(
                f"the lab {self.name!r} is only half restored",
                hint="wait for ./nightjar restore to end, or run it again; else choose another --data or --lab",
            )
        found, identity = int(answer[0]), str(answer[1])
        if found > SCHEMA:
            raise Unavailable(
                f"the lab {self.name!r} was written with schema {found}, this version reads {SCHEMA}",
                hint="run the version that wrote it, or choose another --data or --lab",
            )
        self.identity = self.identity or identity
        if reason := await self.outlived():
            raise Unavailable(reason, hint="start the process again")
        return found

    async def outlived(self) -> str | None:
        """Why this process must not go on with the lab that it began with; None where it may."""
        schema, identity = await self.command("MGET", self.keys("schema"), self.keys("identity"))
        if schema is not None and int(schema) > SCHEMA:
            return f"the lab {self.name!r} has schema {schema} by now, this version reads {SCHEMA}"
        if identity not in (None, self.identity):
            return f"the lab {self.name!r} is another than when this process began: it was made anew"
        return None

    async def facts(self) -> dict[str, Any]:
        """Redis' version, how durable a write is (`appendfsync` everysec risks a second on power loss), and what is
        thrown away when it is full; None for what this Redis, or our user of it, does not tell.
        """
        server, persistence, memory = [await self._info(s) for s in ("server", "persistence", "memory")]
        aof = persistence.get("aof_enabled")
        return {
            "version": server.get("redis_version"),
            "aof": None if aof is None else bool(aof),
            "appendfsync": await self._config("appendfsync"),
            "maxmemory_policy": memory.get("maxmemory_policy") or await self._config("maxmemory-policy"),
        }

    async def vitals(self) -> dict[str, float]:
        """Bytes that Redis uses and may use (0: all there are), and whether the last append to its file worked."""
        memory, persistence = await self.pipeline([("INFO", "memory"), ("INFO", "persistence")])
        return {
            "used_memory": float(memory["used_memory"]),
            "maxmemory": float(memory.get("maxmemory", 0)),
            "aof_enabled": float(persistence.get("aof_enabled", 0)),
            "aof_last_write_ok": float(persistence.get("aof_last_write_status", "ok") == "ok"),
        }

    async def _info(self, section: str) -> dict[str, Any]:
        answer = await self._if_told("INFO", section)
        return answer if isinstance(answer, dict) else {}

    async def _config(self, name: str) -> str | None:
        answer = await self._if_told("CONFIG", "GET", name)
        return answer.get(name) if isinstance(answer, dict) else (answer or [None, None])[1]

    async def _if_told(self, *words: Arg) -> Any:
        """The answer of a command that a managed Redis may not know, or forbid; None where it does."""
        try:
            return await self.command(*words)
        except ResponseError:
            return None
        except Unavailable as problem:
            if problem.fields.get("forbidden"):
                return None
            raise

    def pubsub(self) -> PubSub:
        """A subscriber; its reads have no timeout but the one that each asks for."""
        return self._redis.pubsub()

    async def close(self) -> None:
        """Give the connections back."""
        await self._pipe.close()
        await self._redis.aclose()


def time_of(answer: Sequence[str]) -> float:
    """What TIME answers, in seconds since 1970."""
    return int(answer[0]) + int(answer[1]) / 1e6


def _connect(url: str, timeout_s: float) -> redis.asyncio.Redis:
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url,
        decode_responses=True,
        protocol=2,
        socket_timeout=None,
        socket_connect_timeout=5.0,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
        max_connections=CONNECTIONS,
        timeout=timeout_s,
        **connection_options(url),
    )
    return redis.asyncio.Redis.from_pool(pool)


_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPALIVE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Half a minute until the kernel calls a silent host dead; each system knows some of these names."""


def connection_options(url: str) -> dict[str, Any]:
    """Options of a connection to `url`: it notices a host which has gone without a word.

    It does not name its library (CLIENT SETINFO): before Redis 7.2 no user can be given the right to do that alone.
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
    "NOREPLICAS": ("Redis has too few replicas to accept a write", "bring them back; nothing was written"),
    "TRYAGAIN": ("Redis is moving keys between its nodes", "try again in a moment"),
    "UNBLOCKED": ("Redis has become a replica", "try again in a moment"),
}
"""What Redis answers when it is well but cannot serve: its code, what that means, what to do."""


def unavailable(problem: RedisError) -> Unavailable:
    """What is wrong with Redis, in words, with the remedy; raises what is wrong with the command instead."""
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
        case exceptions.TryAgainError():
            detail, hint = _REFUSALS["TRYAGAIN"]
        case exceptions.AskError():  # and MOVED
            detail, hint = (
                "another node of the Redis cluster has this lab's keys",
                "point NIGHTJAR_REDIS_URL at that node, or at a Redis that is no cluster",
            )
        case ResponseError() if (code := _code(problem)) in _REFUSALS:
            detail, hint = _REFUSALS[code]
        case _:
            raise problem
    return Unavailable(detail, hint=hint, retry_after=2.0)


def _tls_refusal(problem: BaseException) -> Unavailable | None:
    """What is wrong with TLS, where asking again does not mend it."""
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
"""Of Redis since 7.2, and before."""


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
