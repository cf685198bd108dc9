"""Changes of the state: read, decide, and commit everything at once if what was read is still so.

    async def decide(change: Change) -> int:
        (limit,) = await change.read(hmget(lab.keys("budget", "x"), "limit"))
        if limit["limit"] is not None:
            raise Conflict("it has a limit")
        change.hset(lab.keys("budget", "x"), {"limit": 3})
        change.emit("tag.budget_changed", "x", "x", {"limit": 3})
        return 3

    answer = await lab.change(decide)

Reads are guarded. If a value has changed by the commit, the commit refuses and `decide` is called again. A `.loose()`
read may change. Nothing is written before the commit, which is one script (`lua/commit.lua`).
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from random import random
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from pydantic_core import to_json

from state.errors import NightjarError, Unavailable
from state.keys import kind_of
from state.moves import Arg, wire
from state.records.base import dumps

if TYPE_CHECKING:
    from state.client import Lab
    from state.derived import Derived

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
T = TypeVar("T")
Decide = Callable[["Change"], Awaitable[T]]

TRIES = 20
"""Most times that a change is decided: others have changed what it read each time."""
BLOB_BYTES = 16 * 1024
"""Longer words travel by themselves, not within the plan."""
MOST_WORDS = 1000
"""Of one command."""
MOST_COMMANDS = 2000
"""Of one change: a script holds up all others."""
A_DAY_S = 86400


class Placeholder:
    """What only the commit knows. It stands for itself in names, members, scores and events, and is never a text."""

    word: list[Any]
    """It, as the plan has it."""

    def __str__(self) -> str:
        raise TypeError("only the commit knows it: join it by Joined")

    def __format__(self, spec: str) -> str:
        return str(self)


class Number(Placeholder):
    """A number that the commit hands out: a counter's next value."""

    def __init__(self, nth: int) -> None:
        self.nth, self.word = nth, [nth]
        self.value = 0
        """Known once the change is committed."""


class Digits(Placeholder):
    """The last digits of a number, with zeros in front."""

    def __init__(self, number: Number, count: int) -> None:
        self.word = [[number.nth, count]]


class Count:
    """Members of a sorted set by score, counted at the commit: for the answer."""

    def __init__(self) -> None:
        self.value = 0
        """Known once the change is committed."""


class Now(Placeholder):
    """The moment of the commit, in seconds of Redis' clock. `NOW + 60` is a minute later."""

    def __init__(self, later_s: float = 0.0) -> None:
        self.later_s = later_s
        self.word = [[later_s]] if later_s else [0]

    def __add__(self, seconds: float) -> Now:
        return Now(self.later_s + seconds)


NOW = Now()


class Joined(Placeholder):
    """A text with placeholders in it: `Joined("mar11-", number)`."""

    def __init__(self, *parts: str | Placeholder) -> None:
        self.parts = parts
        self.word = []
        for part in parts:
            self.word += [part] if isinstance(part, str) else part.word


_TEXT = frozenset({str})
Word = str | int | float | bytes | Placeholder
Key = str | Joined
N = TypeVar("N", bound=Key)
"""The name of a field or of a member."""


@dataclass(slots=True)
class Read(Generic[T]):
    """One read of one key, with the guards that its reply makes."""

    command: Sequence[Arg]
    present: Callable[[Any], T] | None
    """The meaning of the reply; None: the reply itself."""
    guards: Callable[[Any], list[list[Any]]] | None
    """Guards as the commit takes them, the key left out; None: it may change."""
    fields: tuple[str, ...] | None = None
    """Of a hash: these are guarded, and `guards` is not asked."""
    is_held: bool = True
    """Else it is guarded once `Change.hold` says so."""

    def presented(self, reply: Any) -> T:
        """The meaning of the reply."""
        if self.fields is not None and isinstance(reply, list):
            reply = dict(zip(self.fields, reply, strict=True))
        return reply if self.present is None else self.present(reply)

    def to(self, meaning: Callable[[T], B]) -> Read[B]:
        """The same, read as what `meaning` makes of it."""
        first = self.present
        present = meaning if first is None else lambda reply: meaning(first(reply))
        return Read(self.command, present, self.guards, self.fields, self.is_held)

    def loose(self) -> Read[T]:
        """The same, free to change until the commit: for texts, counters and policy values."""
        return Read(self.command, self.present, None, self.fields)


def hmget(key: str, *names: str, is_held: bool = True) -> Read[dict[str, str | None]]:
    """Some fields of a hash, each as it is stored; None: it is not there.

    If it is not held, it may change until the commit unless `Change.hold` names its key.
    """
    return Read(("HMGET", key, *names), None, _whole, names, is_held)


@overload
def hgetall(key: str, *guarded: str) -> Read[dict[str, str]]: ...
@overload
def hgetall(key: str, *guarded: str, to: Callable[[dict[str, str]], T]) -> Read[T]: ...
def hgetall(key: str, *guarded: str, to: Callable[[dict[str, str]], Any] | None = None) -> Read[Any]:
    """A whole hash; empty where there is none. With `guarded` names, only these fields have to stay the same.

    `to`: what it means.
    """
    return Read(("HGETALL", key), to, _whole, guarded or None)


def _whole(reply: dict[str, str]) -> list[list[Any]]:
    """Guards of a whole hash."""
    fields = [["HMGET", [*reply], [*reply.values()]]] if reply else []
    return [["HLEN", [], len(reply)], *fields]


def get(key: str) -> Read[str | None]:
    """A string."""
    return Read(("GET", key), None, lambda reply: [["GET", [], _or_false(reply)]])


def zscore(key: str, member: str) -> Read[float | None]:
    """A member's score; None: it is not there."""
    return Read(
        ("ZSCORE", key, member),
        lambda reply: None if reply is None else float(reply),
        lambda reply: [["ZSCORE", [member], False if reply is None else repr(float(reply))]],
    )


def size(key: str, *, is_held: bool = True) -> Read[int]:
    """Number of fields, members or entries; of a string its bytes. `is_held`: as in `hmget`."""
    command = _SIZES[kind_of(key)]
    return Read((command, key), int, lambda reply: [[command, [], int(reply)]], is_held=is_held)


def exists(key: str) -> Read[bool]:
    """Whether there is such a key."""
    return Read(("EXISTS", key), bool, lambda reply: [["EXISTS", [], int(reply)]])


def entry(key: str, entry_id: str) -> Read[bool]:
    """Whether a stream has this entry."""
    words = (entry_id, entry_id)
    return Read(("XRANGE", key, *words), bool, lambda reply: [["XRANGE", words, len(reply)]])


def clock() -> Read[float]:
    """Redis' clock as it was read, to compare times with. What is stored is NOW, unless the answer needs it."""
    return Read(("TIME",), lambda reply: (int(reply[0]) * 10**6 + int(reply[1])) / 10**6, None)


@overload
def loosely(*command: Arg) -> Read[Any]: ...
@overload
def loosely(*command: Arg, to: Callable[[Any], T]) -> Read[T]: ...
def loosely(*command: Arg, to: Callable[[Any], Any] | None = None) -> Read[Any]:
    """What no guard can watch: a page, a range, a rank. Choose of it, and read what was chosen.

    `to`: what the reply means.
    """
    return Read(command, to, None)


Asked = Read[Any] | Sequence[Arg]
"""A read, or a plain command, which no guard watches."""
_SIZES = {"string": "STRLEN", "hash": "HLEN", "zset": "ZCARD", "list": "LLEN", "stream": "XLEN"}


def _or_false(value: str | None) -> str | Literal[False]:
    """A reply as Lua has it."""
    return False if value is None else value


class Reader(ABC):
    """Reads several values in one round trip, in the order in which they are named."""

    @abstractmethod
    def pipeline(self, commands: Sequence[Sequence[Arg]]) -> Awaitable[list[Any]]:
        """Several plain reads in one round trip, those of `Lab.reading` too. Raises Unavailable: as `Lab.command`."""

    @overload
    async def read(self, asked: Mapping[str, Asked | None], /) -> dict[str, Any]: ...
    @overload
    async def read(self, one: Read[A], /) -> tuple[A]: ...
    @overload
    async def read(self, one: Read[A], two: Read[B], /) -> tuple[A, B]: ...
    @overload
    async def read(self, one: Read[A], two: Read[B], three: Read[C], /) -> tuple[A, B, C]: ...
    @overload
    async def read(
        self, one: Read[A], two: Read[B], three: Read[C], four: Read[D], /
    ) -> tuple[A, B, C, D]: ...
    @overload
    async def read(self, *asked: Read[Any]) -> tuple[Any, ...]: ...
    async def read(self, *asked: Read[Any] | Mapping[str, Asked | None]) -> tuple[Any, ...] | dict[str, Any]:
        """Several reads may be named. None is not asked, and its answer is None.

        Raises:
            Unavailable: as `Lab.command`. What the meaning of a read raises, such as NotFound.
        """
        named = asked[0] if asked and not isinstance(asked[0], Read) else None
        names = [] if named is None else [*filter(named.get, named)]
        wanted = cast("Sequence[Asked]", asked if named is None else [*map(named.get, names)])
        found: list[Any] = []
        if wanted:
            commands = [one.command if isinstance(one, Read) else one for one in wanted]
            found = self._meanings(wanted, await self.pipeline(commands))
        if named is None:
            return tuple(found)
        return dict.fromkeys(named) | dict(zip(names, found, strict=True))

    async def one(self, asked: Read[A]) -> A:
        """One read."""
        (found,) = await self.read(asked)
        return found

    def _meanings(self, asked: Sequence[Asked], replies: list[Any]) -> list[Any]:
        """The meanings of the replies, in the order of the reads."""
        pairs = zip(asked, replies, strict=True)
        return [one.presented(reply) if isinstance(one, Read) else reply for one, reply in pairs]


class Change(Reader):
    """What one call of `decide` has read and wants written.

    What it reads must be the same at the commit, unless the read is loose. A guarded version that is read first
    guards what every change of it rewrites, even where that is read loosely.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.at = 0.0
        """Moment of the commit, by Redis' clock. Known once it is done."""
        self._guards: list[list[Any]] = []
        self._writes: list[list[Any]] = []
        self._events: list[list[Any]] = []
        self._handed_out: list[list[Any]] = []
        """Counters, as the plan has them, of which the commit hands out the next value."""
        self._counted: list[list[Any]] = []
        self._terms: dict[str, Any] = {}
        """What else the plan says."""
        self._guarded = 0
        """Reads whose replies are guarded."""
        self._maybe: dict[str, list[list[Any]]] = {}
        """Guards of reads that are not held yet, by key."""
        self._keys: dict[str, int] = {}
        """Places of the keys in the commit, from 1."""
        self._blobs: list[bytes] = []
        self._rooms: list[tuple[str, tuple[str, ...], int]] = []
        self._numbers: list[Number] = []
        self._counts: list[Count] = []

    def _meanings(self, asked: Sequence[Asked], replies: list[Any]) -> list[Any]:
        """What the replies mean; each makes its guards.

        Raises:
            RuntimeError: something was written before: a decision knows all that it needs first.
        """
        if self._writes or self._events or self._numbers:
            raise RuntimeError("a change reads before it writes")
        for place, one in enumerate(asked):  # no call for each: a request has twenty
            if not isinstance(one, Read):
                continue
            reply, fields = replies[place], one.fields
            if fields is None:
                guards = [] if one.guards is None else one.guards(reply)
            else:
                if isinstance(reply, dict):
                    values = [*map(reply.get, fields)]
                else:
                    values, replies[place] = reply, dict(zip(fields, reply, strict=True))
                guards = [] if one.guards is None else [["HMGET", fields, values]]
            if one.present is not None:
                replies[place] = one.present(replies[place])
            if not guards:
                continue
            key = str(one.command[1])
            if one.is_held:
                self._guarded += 1
                at = self._keys.setdefault(key, len(self._keys) + 1)
                for command, words, expected in guards:
                    self._guards.append([command, at, words, expected])
            else:
                self._maybe.setdefault(key, []).extend(guards)
        return replies

    def pipeline(self, commands: Sequence[Sequence[Arg]]) -> Awaitable[list[Any]]:
        return self.lab.pipeline(commands)

    def hold(self, key: str) -> None:
        """Guard what was read of this key without being held."""
        if guards := self._maybe.pop(key, []):
            self._guarded += 1
            at = self._at(key)
            self._guards += [[command, at, words, expected] for command, words, expected in guards]

    def room(self, key: str, fields: Sequence[str], most: int) -> None:
        """After the change the sum of these counters is at most `most`; else it is decided again.

        A `number` that the change takes is not counted.
        """
        self._rooms.append((key, tuple(fields), most))

    def before(self, seconds: float) -> None:
        """The commit comes no later than this, by Redis' clock."""
        self._terms["before"] = min(seconds, float(self._terms.get("before", seconds)))

    def number(self, key: str, field: str, *, least: str | None = None) -> Number:
        """The next value of a counter, handed out by the commit. The first is 1.

        With `least`, it is no less than that other field of the hash, and the first is 0.
        """
        self._known(key, "hash")
        self._handed_out.append([self._at(key), field, *([least] if least else [])])
        self._numbers.append(Number(len(self._numbers) + 1))
        return self._numbers[-1]

    def count(self, key: str, most: float | Joined) -> Count:
        """How many members have a score of at most `most` once everything is written."""
        self._known(key, "zset")
        self._counted.append([self._at(key), self._word(most)])
        self._counts.append(Count())
        return self._counts[-1]

    def hset(self, key: Key, fields: Mapping[N, Word]) -> None:
        """Set fields of a hash."""
        self._write("hash", "HSET", key, [*chain.from_iterable(fields.items())], together=2)

    def hdel(self, key: Key, *names: str) -> None:
        """Take fields out of a hash."""
        self._write("hash", "HDEL", key, names)

    def replace(self, key: Key, before: Mapping[str, str], after: Mapping[str, Word]) -> None:
        """Make a hash that was read, and is guarded, what it is to be."""
        self.hset(key, {name: value for name, value in after.items() if before.get(name) != value})
        self.hdel(key, *(name for name in before if name not in after))

    def hincrby(self, key: str, field: str, by: int = 1) -> None:
        """Raise a counter; whole numbers alone, which add up exactly."""
        self._write("hash", "HINCRBY", key, (field, str(by)))

    def zadd(
        self,
        key: Key,
        scores: Mapping[N, float | Placeholder],
        *,
        known: bool = False,
        higher: bool = False,
        lowest: bool = False,
    ) -> None:
        """Give members of a sorted set their scores. With `known` only those that are in it, with `higher` only
        higher scores than they have, with `lowest` only lower ones."""
        words: list[Word] = []
        for member, score in scores.items():
            words += (score, member)
        options = (("XX",) if known else ()) + (("GT",) if higher else ()) + (("LT",) if lowest else ())
        self._write("zset", "ZADD", key, words, together=2, options=options)

    def zincrby(self, key: Key, member: str, by: float) -> None:
        """Raise a member's score; one that is not in the set begins at 0."""
        self._write("zset", "ZINCRBY", key, (by, member))

    def zrem(self, key: Key, *members: str) -> None:
        """Take members out of a sorted set."""
        self._write("zset", "ZREM", key, members)

    def rpush(self, key: Key, *values: Word) -> None:
        """Append to a list."""
        self._write("list", "RPUSH", key, values)

    def ltrim(self, key: Key, most: int) -> None:
        """Keep the newest values of a list."""
        self._write("list", "LTRIM", key, (-most, -1))

    def set(self, key: Key, text: Word, *, lasts_s: float | None = None) -> None:
        """Write a string; it may end by itself."""
        self._write("string", "SET", key, (text, *(() if lasts_s is None else ("PX", int(lasts_s * 1000)))))

    def apply(self, shift: Derived) -> None:
        """Change counters and indexes by this much."""
        lab = self.lab.keys("")
        for (key, name), by in shift.counts.items():
            if by:
                self.hincrby(lab + key, name, by)
        for (key, name), score in shift.scores.items():
            self.zrem(lab + key, name) if score is None else self.zadd(lab + key, {name: score})

    def incrby(self, key: Key, by: int = 1) -> None:
        """Raise a counter that is a string of its own."""
        self._write("string", "INCRBY", key, (by,))

    def expire(self, key: Key, seconds: float, *, first: bool = False) -> None:
        """End a key after this time; with `first` only where no end was set before."""
        self._write(None, "PEXPIRE", key, (int(seconds * 1000), *(("NX",) if first else ())))

    def fit_quota(self) -> None:
        """Refuse it where all its bytes, not its first one alone, are too many for the quota of the call's owner."""
        self._terms["fits"] = True

    def count_stored(self, owner: str, stored_bytes: int) -> None:
        """Count stored bytes on an owner's quota, for a day from the first ones on; events count by themselves."""
        stored = self.lab.keys("stored", owner)
        self.hincrby(stored, "bytes", stored_bytes)
        self.expire(stored, A_DAY_S, first=True)

    def delete(self, *keys: Key) -> None:
        """Drop keys."""
        for key in keys:
            self._write(None, "DEL", key, ())

    def xadd(self, key: Key, fields: Mapping[str, Word], *, most: int | None = None) -> None:
        """Append an entry to a stream, which keeps about so many. An event is appended by `emit`."""
        trimmed = () if most is None else ("MAXLEN", "~", most)
        words = (word for pair in fields.items() for word in pair)
        self._write("stream", "XADD", key, (*trimmed, "*", *words))

    def xdel(self, key: Key, *ids: str) -> None:
        """Take entries out of a stream."""
        self._write("stream", "XDEL", key, ids)

    def xgroup_create(self, key: str, group: str, since: Literal["0", "$"]) -> None:
        """Begin a consumer group of a stream, with all entries or with new ones alone."""
        self._write("stream", "XGROUP CREATE", key, (group, since, "MKSTREAM"))

    def xgroup_destroy(self, key: str, group: str) -> None:
        """End a consumer group of a stream that is there."""
        self._write("stream", "XGROUP DESTROY", key, (group,))

    def emit(
        self,
        event: str,
        tag: str | None,
        subject: str | Joined,
        data: Mapping[str, Any],
        trace: str | None = None,
        *,
        published: bool = True,
    ) -> None:
        """Append an event; `trace` is its traceparent where it is not the call's. Its subscribers are told.

        Values of the data may be placeholders.
        """
        text = _json(data)
        words = [
            subject if isinstance(subject, str) else self._word(subject),
            text if isinstance(text, str) else self._word(text),
        ]
        self._events.append([event, tag or "", *words, trace or False, published])

    async def commit(self) -> bool:
        """Write everything; False where a guard does not hold any more, and nothing was written."""
        if self._is_one_read and not self._rooms:
            return True
        if len(self._writes) > MOST_COMMANDS:
            raise ValueError(f"a change has at most {MOST_COMMANDS} commands: make it in pages")
        plan = {
            "rooms": [self._left(*room) for room in self._rooms],
            "numbers": self._handed_out,
            "writes": self._writes,
            "events": self._events,
            "counts": self._counted,
            **self._terms,
        }
        text = to_json(plan)
        if len(text) > BLOB_BYTES:
            self._take_blobs_out()
            text = to_json(plan)
        first, *numbers = await self.lab.move(
            "commit",
            keys={"on": [*self._keys]},
            args={"guards": to_json(self._guards), "plan": text, "blobs": self._blobs},
        )
        if first == "stale":
            return False
        self.at = float(first)
        later: list[Number | Count] = [*self._numbers, *self._counts]
        for one, value in zip(later, numbers, strict=True):
            one.value = int(value)
        return True

    async def held(self) -> bool:
        """Whether all guarded reads held at one moment. Nothing is written: this is for refusals."""
        self._write_nothing()
        return await self.commit()

    def idle(self, answer: T) -> T:
        """The answer where nothing is to be done: nothing is written, and no guard needs to hold."""
        self._write_nothing()
        self._guards.clear()
        self._guarded = 0
        return answer

    def _write_nothing(self) -> None:
        for part in (
            self._writes,
            self._events,
            self._handed_out,
            self._counted,
            self._rooms,
            self._numbers,
            self._counts,
        ):
            part.clear()

    @property
    def _is_one_read(self) -> bool:
        """One reply was all that it used, and it writes nothing."""
        return self._guarded <= 1 and not (
            self._writes or self._events or self._numbers or "before" in self._terms
        )

    def _write(
        self,
        kind: str | None,
        command: str,
        key: Key,
        words: Sequence[Word],
        *,
        together: int = 1,
        options: Sequence[str] = (),
    ) -> None:
        """Write down a command, in several where it is long: `together` words belong to each other."""
        if kind is not None and not words:
            return
        place: Any
        if type(key) is str:
            if kind_of(key) != kind and kind is not None:
                raise TypeError(f"{key!r} is a {kind_of(key)}, no {kind}")
            place = self._keys.setdefault(key, len(self._keys) + 1)
        else:
            self._known(key, kind)
            place = self._word(key)
        found: list[Any] = [*options, *words]
        if not _TEXT.issuperset(map(type, found)):  # no call for each: a change has hundreds
            for at, word in enumerate(found):
                plain = type(word)
                if plain is int or (plain is float and isfinite(word)):
                    found[at] = repr(word)
                elif plain is not str:
                    found[at] = word.word if isinstance(word, Placeholder) else self._word(word)
        if len(found) <= MOST_WORDS:
            self._writes.append([command, place, found])
            return
        most, first = MOST_WORDS - MOST_WORDS % together, len(options)
        for start in range(first, len(found), most):
            self._writes.append([command, place, [*options, *found[start : start + most]]])

    def _left(self, key: str, fields: tuple[str, ...], most: int) -> list[Any]:
        """Room for what others add."""
        place = self._at(key)
        raised = [words for command, at, words in self._writes if command == "HINCRBY" and at == place]
        return [place, fields, most - sum(int(by) for field, by in raised if field in fields)]

    def _known(self, key: Key, kind: str | None) -> None:
        """Refuse a key that no lab has, or that is of another type: a script is not rolled back."""
        found = kind_of(
            key if isinstance(key, str) else "".join(p if isinstance(p, str) else "0" for p in key.parts)
        )
        if kind is not None and found != kind:
            raise TypeError(f"{key!r} is a {found}, no {kind}")

    def _at(self, key: str) -> int:
        return self._keys.setdefault(key, len(self._keys) + 1)

    def _word(self, word: Word) -> str | list[Any]:
        """A word as the plan has it.

        Raises:
            ValueError: NaN or infinity.
        """
        if isinstance(word, Placeholder):
            return word.word
        text = wire(word)
        if isinstance(text, str):
            return text
        self._blobs.append(text)
        return [-len(self._blobs)]

    def _take_blobs_out(self) -> None:
        """Long texts travel by themselves."""
        for words in (*(words for _, _, words in self._writes), *self._events):
            for place, word in enumerate(words):
                if isinstance(word, str) and len(word) > BLOB_BYTES:
                    self._blobs.append(word.encode())
                    words[place] = [-len(self._blobs)]


def _json(data: Mapping[str, Any]) -> str | Joined:
    """An object as JSON, with its placeholders in front: numbers, and texts that have some."""
    later = {name: value for name, value in data.items() if isinstance(value, Placeholder)}
    if not later:
        return dumps(data)
    known = dumps({name: data[name] for name in data if name not in later})
    parts: list[str | Placeholder] = []
    for name, value in later.items():
        mark = '"' if isinstance(value, Joined) else ""
        own = value.parts if isinstance(value, Joined) else (value,)
        texts = (json.dumps(part)[1:-1] if isinstance(part, str) else part for part in own)
        parts += [f"{',' if parts else '{'}{json.dumps(name)}:{mark}", *texts, mark]
    return Joined(*parts, "}" if known == "{}" else f",{known[1:]}")


async def tried(lab: Lab, decide: Decide[T]) -> tuple[T] | None:
    """Decide and commit once; None where what was read has changed since.

    Raises:
        Unavailable: as `Lab.command`. What `decide` raises, where what it read held at one moment.
    """
    change = Change(lab)
    try:
        answer = await decide(change)
    except NightjarError:
        if await change.held():
            raise
        return None
    return (answer,) if await change.commit() else None


async def changed(lab: Lab, decide: Decide[T]) -> T:
    """Decide and commit, again where what was read has changed since. A lost reply is never followed by a second try.

    Raises:
        Unavailable: others were faster each time, or as `Lab.command`. What `decide` raises: nothing was written.
    """
    for nth in range(TRIES):
        if nth > 2:  # several processes meet: each waits for another moment
            await asyncio.sleep(random() * 0.001 * 2 ** min(nth, 7))
        if (answer := await tried(lab, decide)) is not None:
            return answer[0]
    raise Unavailable(
        f"what this changes was changed by others {TRIES} times", hint="try again", retry_after=1.0
    )
