"""Values and events of functions of your own: a namespace for each noun."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import JsonValue

from state.change import Change, hmget
from state.client import Lab
from state.errors import Conflict, Invalid
from state.events import CATALOGUE
from state.ids import TAG_PATTERN
from state.reads import Store

MOST_BYTES = 1024 * 1024
"""Of all names and values of a noun."""
EVENT_BYTES = 16 * 1024
"""Of an event's subject and data."""
SIZE = ""
"""The field with the bytes of all others. No value has this name."""


class Own(Store):
    """The values and events of one noun, for the handlers of its functions."""

    def __init__(self, lab: Lab, noun: str = "", *, writes: bool = False) -> None:
        super().__init__(lab)
        self._noun, self._key, self._writes = noun, lab.keys("own", noun), writes

    def of(self, noun: str, *, writes: bool) -> Own:
        return Own(self._lab, noun, writes=writes)

    async def get(self, name: str, default: JsonValue = None) -> JsonValue:
        """The value of a name; `default` where there is none."""
        (found,) = await self._lab.command("HMGET", self._key, name)
        value: JsonValue = default if found is None else json.loads(found)
        return value

    async def all(self) -> dict[str, JsonValue]:
        """Every value by name."""
        stored = await self._lab.hash(self._key)
        return {name: json.loads(stored[name]) for name in sorted(stored) if name != SIZE}

    async def set(self, name: str, value: JsonValue) -> None:
        """Store a JSON value. Raises Conflict: all values of the noun would take more than MOST_BYTES."""
        await self._put(name, json.dumps(value, allow_nan=False, ensure_ascii=False))

    async def delete(self, name: str) -> None:
        await self._put(name, None)

    async def _put(self, name: str, text: str | None) -> None:
        self._check_writes()
        if name == SIZE:
            raise Invalid("a value of your own has no name", hint="name it")

        async def decide(change: Change) -> None:
            (found,) = await change.read(hmget(self._key, name, SIZE))
            grows = _bytes(name, text) - _bytes(name, found[name])
            total = int(found[SIZE] or 0) + grows
            if grows > 0 and total > MOST_BYTES:
                raise Conflict(
                    f"the values of {self._noun!r} would take {total} bytes, and may take {MOST_BYTES}",
                    hint="delete some of them first",
                )
            if text == found[name]:
                return change.idle(None)
            change.hincrby(self._key, SIZE, grows)
            change.replace(self._key, {name: found[name] or ""}, {} if text is None else {name: text})
            return None

        await self.change(decide, in_turn=self._noun)

    async def emit(
        self, event: str, subject: str, data: Mapping[str, JsonValue], *, tag: str | None = None
    ) -> None:
        """Append an event of EVENTS. Raises Invalid: it is not declared, or too long."""
        self._check_writes()
        if event not in CATALOGUE or not event.startswith(f"{self._noun}."):
            raise Invalid(f"{event!r} is no event of {self._noun!r}", hint="declare it in EVENTS of the file")
        size = len(subject.encode()) + len(json.dumps(data, allow_nan=False).encode())
        if size > EVENT_BYTES or (tag and not re.fullmatch(TAG_PATTERN, tag)):
            raise Invalid(
                f"{event!r} has {size} bytes and the tag {tag!r}", hint=f"send at most {EVENT_BYTES}"
            )

        async def decide(change: Change) -> None:
            change.emit(event, tag, subject, data)

        await self.change(decide)

    def _check_writes(self) -> None:
        if not self._writes:
            raise TypeError(f"a function of {self._noun!r} stores or emits: declare it with writes=True")


def _bytes(name: str, text: str | None) -> int:
    return 0 if text is None else len(f"{name}{text}".encode())
