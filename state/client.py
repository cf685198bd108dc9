"""The connection to Redis: one lab's keys, its Lua scripts, and Redis' failures as our own errors."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import AsyncIterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import redis.asyncio
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from state.errors import Invalid, Unavailable
from state.keys import Keys

SCHEMA = 1
"""Version of the data's layout; a lab of another version is refused."""

Arg = str | int | float | bytes


class Lab:
    """One lab's side of Redis: every key carries the hash tag `{<lab>}`, every write is one script.

    Nothing is retried here (a repeated write is a second write): callers' operations are idempotent instead.
    """

    def __init__(self, name: str, url: str, *, timeout_s: float = 5.0) -> None:
        self.name = name
        self.keys = Keys(name)
        self.url = url
        self.identity = ""
        """Random, made with the lab: tells labs of the same name apart. Known after `check`."""
        self._redis = _connect(url, timeout_s)
        self._blocking = _connect(url, None)

    def channel(self, kind: str) -> str:
        """The Pub/Sub channel of an event type, or a pattern of them."""
        return f"nightjar:{self.name}:{kind}"

    async def run(self, script: str, keys: Sequence[str], args: Sequence[Arg | None]) -> Any:
        """Run `lua/<script>.lua`. None travels as an empty string, floats as their shortest exact text."""
        text, sha = load(script)
        argv = [wire(a) for a in args]
        try:
            return await self.command("EVALSHA", sha, len(keys), *keys, *argv)
        except NoScriptError:
            return await self.command("EVAL", text, len(keys), *keys, *argv)

    async def command(self, *words: Arg, **options: Any) -> Any:
        """One Redis command.

        Raises:
            Unavailable: Redis does not answer, refuses us, is read-only or full.
        """
        try:
            return await self._redis.execute_command(*words, **options)  # type: ignore[no-untyped-call]
        except NoScriptError:
            raise
        except RedisError as problem:
            raise unavailable(problem) from problem

    async def raw(self, words: Sequence[str]) -> Any:
        """A command that a person typed; what Redis refuses is answered in its own words.

        Raises:
            Invalid: Redis refuses it. Unavailable: Redis does not answer.
        """
        try:
            return await self.command(*words)
        except ResponseError as problem:
            raise Invalid(f"Redis: {problem}") from problem

    async def blocking(self, *words: Arg) -> Any:
        """One command that waits in Redis; it has a connection without a read timeout of its own."""
        try:
            return await self._blocking.execute_command(*words)  # type: ignore[no-untyped-call]
        except RedisError as problem:
            raise unavailable(problem) from problem

    async def scan(self) -> AsyncIterator[str]:
        """Every key of the lab; for people who look, never on a request's path."""
        cursor = 0
        while True:
            cursor, keys = await self.command("SCAN", cursor, "MATCH", self.keys("*"), "COUNT", 1000)
            for key in keys:
                yield key
            if int(cursor) == 0:
                return

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Several reads in one round trip."""
        if not commands:
            return []
        pipe = self._redis.pipeline(transaction=False)
        for words in commands:
            pipe.execute_command(*words)
        try:
            answers: list[Any] = await pipe.execute()
        except RedisError as problem:
            raise unavailable(problem) from problem
        return answers

    async def hash(self, key: str) -> dict[str, str]:
        """All fields of a hash; empty where there is none."""
        answer: dict[str, str] = await self.command("HGETALL", key)
        return answer

    async def hashes(self, keys: Sequence[str]) -> list[dict[str, str]]:
        """Several hashes in one round trip."""
        return await self.pipeline([("HGETALL", key) for key in keys])

    async def now(self) -> float:
        """Redis' clock, in seconds since 1970."""
        seconds, micros = await self.command("TIME")
        return float(seconds) + float(micros) / 1e6

    async def check(self) -> None:
        """Load every script and refuse a lab whose data has another layout than this code.

        Raises:
            Unavailable: Redis does not answer, or the lab's schema is another.
        """
        for script in scripts():
            await self.command("SCRIPT", "LOAD", load(script)[0])
        made = secrets.token_hex(8)
        identity = await self.command("SET", self.keys("identity"), made, "NX", "GET", get=True)
        self.identity = identity or made
        found = await self.command("SET", self.keys("schema"), str(SCHEMA), "NX", "GET", get=True)
        if found not in (None, str(SCHEMA)):
            raise Unavailable(
                f"the lab {self.name!r} was written with schema {found}, this version reads {SCHEMA}",
                hint="run the version that wrote it, or choose another --data or --lab",
            )

    async def facts(self) -> dict[str, Any]:
        """Redis' version and how durable a write is: `appendfsync` everysec risks a second on power loss."""
        server, persistence = await self.pipeline([("INFO", "server"), ("INFO", "persistence")])
        return {
            "version": server.get("redis_version"),
            "aof": bool(persistence.get("aof_enabled")),
            "appendfsync": await self._config("appendfsync"),
            "maxmemory_policy": await self._config("maxmemory-policy"),
        }

    async def _config(self, name: str) -> str | None:
        try:
            answer = await self.command("CONFIG", "GET", name)
        except ResponseError:
            return None  # a managed Redis may forbid CONFIG
        return answer.get(name) if isinstance(answer, dict) else (answer or [None, None])[1]

    def pubsub(self) -> PubSub:
        """A subscriber on the connection that may wait."""
        return self._blocking.pubsub()

    async def close(self) -> None:
        """Give the connections back."""
        await self._redis.aclose()
        await self._blocking.aclose()


def _connect(url: str, timeout_s: float | None) -> redis.asyncio.Redis:
    return redis.asyncio.Redis.from_url(  # type: ignore[no-any-return, no-untyped-call, unused-ignore]
        url,
        decode_responses=True,
        protocol=2,
        socket_timeout=timeout_s,
        socket_connect_timeout=5.0,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
        max_connections=256,
    )


def wire(value: Arg | None) -> str | bytes:
    """A value as Redis stores it: floats by `repr`, so that they come back to the last bit.

    Raises:
        ValueError: not a finite number.
    """
    if value is None:
        return ""
    if isinstance(value, bytes | str):
        return value
    if not math.isfinite(value):
        raise ValueError(f"{value!r} must never reach the state")
    return repr(value) if isinstance(value, float) else str(int(value))


@cache
def load(script: str) -> tuple[str, str]:
    """Text and SHA-1 of a script, with the shared helpers of `lua/_prelude.lua` in front."""
    folder = Path(__file__).parent / "lua"
    text = (folder / "_prelude.lua").read_text() + (folder / f"{script}.lua").read_text()
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def scripts() -> list[str]:
    """Names of all scripts."""
    return sorted(p.stem for p in (Path(__file__).parent / "lua").glob("[a-z]*.lua"))


def unavailable(problem: RedisError) -> Unavailable:
    """What is wrong with Redis, in words, with the remedy."""
    match problem:
        case AuthenticationError():
            detail, hint = "Redis refuses our password", "correct the password in NIGHTJAR_REDIS_URL"
        case TimeoutError():
            detail, hint = "Redis did not answer in time", "try again; ./nightjar status shows the lab"
        case ConnectionError():
            detail, hint = (
                "Redis cannot be reached",
                "it may be restarting: try again; else start ./nightjar up",
            )
        case ReadOnlyError():
            detail, hint = "Redis is a read-only replica", "point NIGHTJAR_REDIS_URL at the primary"
        case OutOfMemoryError():
            detail, hint = "Redis has no memory left", "raise maxmemory; nothing was written"
        case ResponseError() if str(problem).startswith(("LOADING ", "BUSY ", "MASTERDOWN ")):
            detail, hint = "Redis is busy starting", "try again in a moment"
        case ResponseError() if "OOM command" in str(problem):
            detail, hint = "Redis has no memory left", "raise maxmemory; nothing was written"
        case _:
            raise problem
    return Unavailable(detail, hint=hint, retry_after=2.0)
