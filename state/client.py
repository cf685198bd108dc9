"""One lab's side of Redis: its keys, its moves, its schema."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from weakref import WeakValueDictionary

from state import quota
from state.change import Change, Decide, Reader, changed, clock, exists, get, tried
from state.errors import Unavailable
from state.keys import Keys
from state.moves import Arg, GivenArgs, GivenKeys, load, script_command
from state.traceparent import current

if TYPE_CHECKING:
    from state.archive import Archive

LAYOUT = 2
"""Number of the data's layout. A lab with another number is refused, and one with the key `schema` of version 0.1."""

NOTHING: Mapping[str, str] = {}
T = TypeVar("T")


class Lab(Reader):
    """One lab's side of Redis: every key carries the hash tag `{<lab>}`, every write is one script.

    Nothing is retried here (a repeated write is a second write): callers' operations are idempotent instead.
    """

    def __init__(
        self, name: str, url: str, *, timeout_s: float = 5.0, archive: Archive | None = None
    ) -> None:
        self.name = name
        self.keys = Keys(name)
        self.url = url
        self.timeout_s = timeout_s
        """Seconds after which Redis counts as silent."""
        self.archive = archive
        """The archive of old patches; None if this process does not know it."""
        self.identity = ""
        """Random id of the lab, which distinguishes labs of the same name. Known after `check`."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        from state.connection import Connection  # here, since it imports redis-py

        self._redis = Connection(url, timeout_s, key=self.keys(""))

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[Lab]:
        """The same lab on connections of its own. A write that Redis delays does not delay calls on the other
        connections."""
        lab = Lab(self.name, self.url, timeout_s=self.timeout_s, archive=self.archive)
        try:
            yield lab
        finally:
            await lab.close()

    def channel(self, kind: str) -> str:
        """The Pub/Sub channel of an event type, or a pattern of them."""
        return f"nightjar:{self.name}:{kind}"

    async def move(self, name: str, *, keys: GivenKeys = NOTHING, args: GivenArgs = NOTHING) -> Any:
        """Make the move `lua/<name>.lua` with the keys and values that its header declares; None is left out.

        Keys that the lab, or the tag that the value `tag` names, has only one of are given by themselves.

        The traceparent of the present call goes along, for the events that the script writes, and the quota of its
        caller.

        Raises:
            TypeError: a name is missing, or is not declared. Unavailable: as `command`. TooManyRequests: the quota of
                the present call's owner has no room.
        """
        move, counted = load(name), quota.current.get()
        if counted is not None:
            keys = {"stored": self.keys("stored", counted.owner), **keys}
            args = {"most_stored": counted.most if counted.refuses else None, **args}
        answer = await self._redis.make(
            move, *move.words(self.keys, keys, {"traceparent": current.get(), **args})
        )
        if counted is not None:
            quota.check_stored(counted, answer)
        return answer

    async def change(self, decide: Decide[T], *, in_turn: str | None = None, at_once: bool = False) -> T:
        """Read, decide and commit; see `state/change.py`. `in_turn` lines up this process' changes of that name.

        With `at_once` they are lined up from their second try on. n changes that meet once are so decided some 2 n
        times, not n * n / 2 times.

        Raises:
            Unavailable: others changed what was read each time, or as `command`. What `decide` raises.
        """
        if at_once and (answer := await tried(self, decide)) is not None:
            return answer[0]
        async with self._turns.setdefault(in_turn, asyncio.Lock()) if in_turn else nullcontext():
            return await changed(self, decide)

    def reading(self, name: str, *, keys: GivenKeys = NOTHING, args: GivenArgs = NOTHING) -> Sequence[Arg]:
        """A read-only script `lua/<name>.lua` as one command of a `pipeline`. Raises TypeError: as `move`."""
        return script_command(self.keys, name, keys, args)

    async def command(self, *words: Arg, **shape: bool) -> Any:
        """One Redis command on the shared connection. `shape` sets the form in which redis-py returns the reply.

        Raises:
            Unavailable: Redis does not answer, refuses us, or cannot write; see `state.connection.unavailable`.
        """
        return await self._redis.command(*words, **shape)

    def pipeline(self, commands: Sequence[Sequence[Arg]]) -> Coroutine[Any, Any, list[Any]]:
        """Several reads in one round trip, those of `reading` too. Raises Unavailable: as `command`."""
        return self._redis.pipeline(commands)

    async def binary(self, *words: Arg) -> Any:
        """One command whose reply is bytes. Raises Unavailable: as `command`."""
        return await self._redis.alone(words, self.timeout_s, NEVER_DECODE=True)

    async def raw(self, words: Sequence[str]) -> Any:
        """A command that a person typed. Raises Invalid: Redis refuses it. Unavailable: as `command`."""
        return await self._redis.raw(words)

    async def blocking(self, *words: Arg, wait_s: float) -> Any:
        """One command that waits in Redis, at most `wait_s`. Raises Unavailable, also for no reply."""
        return await self._redis.alone(words, wait_s + self.timeout_s)

    async def scan(self, pattern: str = "*") -> AsyncIterator[str]:
        """Every key of the lab whose name fits; for people who look, never on a request's path."""
        cursor = 0
        while True:
            cursor, keys = await self.command("SCAN", cursor, "MATCH", self.keys(pattern), "COUNT", 1000)
            for key in keys:
                yield key
            if int(cursor) == 0:
                return

    async def hash(self, key: str) -> dict[str, str]:
        """All fields of a hash; empty where there is none."""
        answer: dict[str, str] = await self.command("HGETALL", key)
        return answer

    async def hashes(self, keys: Sequence[str]) -> list[dict[str, str]]:
        return await self.pipeline([("HGETALL", key) for key in keys])

    async def now(self) -> float:
        """Redis' clock, in seconds since 1970."""
        return await self.one(clock())

    async def check(self) -> None:
        """Load every script, open or make the lab. Raises Unavailable: no Redis, or another, half or new lab."""
        await self._redis.load_scripts()
        self.identity = await self.change(self._opened)
        if reason := await self.outlived():
            raise Unavailable(reason, hint="start the process again")

    async def _opened(self, change: Change) -> str:
        """Make the lab where there is none; answers the identity that this process goes on with."""
        keys = self.keys
        is_restoring, is_of_0_1, layout, identity = await change.read(
            exists(keys("restoring")), exists(keys("schema")), get(keys("layout")), get(keys("identity"))
        )
        if is_restoring:
            raise Unavailable(
                f"the lab {self.name!r} is only half restored",
                hint="wait for ./nightjar restore to end, or run it again; else choose another --data or --lab",
            )
        layout = "0" if is_of_0_1 else layout or str(LAYOUT)
        if layout != str(LAYOUT):
            raise Unavailable(
                f"another version of Nightjar wrote the lab {self.name!r}: its layout is {layout}, this version reads"
                f" {LAYOUT}",
                hint="run the version that wrote it, or choose another --data or --lab",
            )
        identity = identity or self.identity or secrets.token_hex(8)
        change.set(keys("layout"), layout)
        change.set(keys("identity"), identity)
        return self.identity or identity

    async def outlived(self) -> str | None:
        """Why this process must not go on with the lab that it began with; None where it may."""
        layout, identity = await self.command("MGET", self.keys("layout"), self.keys("identity"))
        if layout not in (None, str(LAYOUT)):
            return f"the lab {self.name!r} has layout {layout} now, this version reads {LAYOUT}"
        if identity not in (None, self.identity):
            return f"the lab {self.name!r} was made anew since this process began"
        return None

    async def facts(self) -> dict[str, Any]:
        """Redis' version, its durability (`appendfsync` everysec risks the last second), and its eviction policy. A
        value is None if this Redis, or our user, does not show it."""
        server, persistence, memory = [await self._info(s) for s in ("server", "persistence", "memory")]
        aof = persistence.get("aof_enabled")
        return {
            "version": server.get("redis_version"),
            "aof": None if aof is None else bool(aof),
            "appendfsync": await self._config("appendfsync"),
            "maxmemory_policy": memory.get("maxmemory_policy") or await self._config("maxmemory-policy"),
        }

    async def vitals(self) -> dict[str, float]:
        """Bytes that Redis uses and may use (0: no limit), and whether the last append to its file worked."""
        memory, persistence = await self.pipeline([("INFO", "memory"), ("INFO", "persistence")])
        return {
            "used_memory": float(memory["used_memory"]),
            "maxmemory": float(memory.get("maxmemory", 0)),
            "aof_enabled": float(persistence.get("aof_enabled", 0)),
            "aof_last_write_ok": float(persistence.get("aof_last_write_status", "ok") == "ok"),
        }

    async def _info(self, section: str) -> dict[str, Any]:
        answer = await self._redis.if_told("INFO", section)
        return answer if isinstance(answer, dict) else {}

    async def _config(self, name: str) -> str | None:
        answer = await self._redis.if_told("CONFIG", "GET", name)
        return answer.get(name) if isinstance(answer, dict) else (answer or [None, None])[1]

    async def hear(self, heard: Callable[[str, str], None]) -> NoReturn:
        """Call `heard` with the channel and text of each event. Raises RedisError: it is lost, or silent."""
        await self._redis.hear(self.channel("*"), heard)

    async def close(self) -> None:
        await self._redis.close()
