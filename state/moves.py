"""Moves: the Lua scripts by name, with the keys and values that each one declares.

A script's header declares what it takes:

    -- parts: events books        shared parts of `lua/_<part>.lua`, put in front
    -- keys: tag gpu? sources*    read as K.tag; `?` may be absent, `*` is a list
    -- args: id seconds?          read as A.id, as text

A key that the lab has once (`events`), or the tag that the value `tag` names (`forest`), is implied.

The names travel in the first ARGV, the keys and values as they are: patches are binary, and cjson loses digits. A
script declares what the parts that it includes declare, too.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, cast

from state.keys import Keys

Arg = str | int | float | bytes

FOLDER = Path(__file__).parent / "lua"
_DECLARED = re.compile(r"^-- (parts|keys|args):(.*)$", re.MULTILINE)
_NAME = re.compile(r"(\w+)([?*]?)")

Kind = Literal["", "?", "*"]
"""Required, optional, a list."""
GivenKeys = Mapping[str, str | Sequence[str] | None]
GivenArgs = Mapping[str, Arg | Sequence[Arg] | None]


@dataclass(frozen=True)
class Move:
    """One script with what it takes."""

    name: str
    text: str
    sha: str
    keys: Mapping[str, Kind]
    args: Mapping[str, Kind]
    needed_keys: Sequence[str]
    needed_args: Sequence[str]

    def words(self, lab: Keys, keys: GivenKeys, args: GivenArgs) -> tuple[list[str], list[str | bytes]]:
        """KEYS and ARGV of a call; None stands for an optional name that is absent.

        Raises:
            TypeError: a name is missing, or the script does not declare it. ValueError: a number is not finite.
        """
        tag = args.get("tag")
        implied = _implied(self.name, lab, tag if isinstance(tag, str) else None)
        names, flat_keys = self._flat("key", self.keys, self.needed_keys, {**implied, **keys})
        values, flat_args = self._flat("value", self.args, self.needed_args, args)
        argv = [value if type(value) is str or type(value) is bytes else wire(value) for value in flat_args]
        return cast("list[str]", flat_keys), [f"{names}|{values}", *argv]

    def _flat(
        self,
        what: str,
        declared: Mapping[str, Kind],
        needed: Sequence[str],
        given: Mapping[str, Arg | Sequence[Arg] | None],
    ) -> tuple[str, list[Arg]]:
        """The given names in one text, lists with their length, and what they stand for."""
        names: list[str] = []
        flat: list[Arg] = []
        found = 0  # of those that it needs
        for name, value in given.items():
            kind = declared.get(name)
            if kind == "*":
                several: Sequence[Arg] = value if isinstance(value, list | tuple) else ()
                names.append(f"{name}={len(several)}")
                flat += several
            elif kind is None:
                raise TypeError(f"the move {self.name!r} takes no {what} {name}")
            elif value is not None:
                names.append(name)
                flat.append(value)  # type: ignore[arg-type]  # a list is refused by wire
                found += not kind
        if found < len(needed):
            absent = [name for name in needed if given.get(name) is None]
            raise TypeError(f"the move {self.name!r} needs the {what} {', '.join(absent)}")
        return " ".join(names), flat


@lru_cache(1024)
def _implied(name: str, lab: Keys, tag: str | None) -> Mapping[str, str]:
    """The keys of a move that need not be given."""
    return lab.implied([key for key, kind in load(name).keys.items() if kind != "*"], tag)


def wire(value: Arg) -> str | bytes:
    """A value as Redis stores it: floats by `repr`, to the last bit. Raises ValueError: not a finite number."""
    if isinstance(value, bytes | str):
        return value
    if not math.isfinite(value):
        raise ValueError(f"{value!r} must never reach the state")
    return repr(value) if isinstance(value, float) else str(int(value))


@cache
def load(name: str) -> Move:
    """The move `lua/<name>.lua`, with the parts that it includes in front."""
    own = (FOLDER / f"{name}.lua").read_text()
    parts = list(dict.fromkeys(["move", *_parts(own)]))
    texts = [(FOLDER / f"_{part}.lua").read_text() for part in parts]
    keys, args = (_names(kind, [own, *texts]) for kind in ("keys", "args"))
    declared = [*keys.items(), *args.items()]
    marked = {kind: " ".join(name for name, mark in declared if mark == kind) for kind in "?*"}
    heads = [f"local OPTIONAL, LISTS = ' {marked['?']} ', ' {marked['*']} '"]
    text = "\n".join([*heads, *texts, own])
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    needed = ([each for each, kind in names.items() if not kind] for names in (keys, args))
    return Move(name, text, sha, keys, args, *needed)


class Prepared(tuple[Arg, ...]):
    """A command that is sent again and again, and keeps its bytes."""

    packed: bytes | None = None


def script_command(lab: Keys, name: str, keys: GivenKeys, args: GivenArgs) -> Sequence[Arg]:
    """A read-only script as one command. Raises TypeError, ValueError: as `Move.words`."""
    script = load(name)
    keyed, argv = script.words(lab, keys, args)
    return ("EVALSHA_RO", script.sha, len(keyed), *keyed, *argv)


@cache
def moves() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("[a-z]*.lua"))


def _parts(text: str) -> list[str]:
    """The parts that a script includes, each behind those that it includes itself."""
    found: list[str] = []
    for part in (
        word for kind, words in _DECLARED.findall(text) if kind == "parts" for word in words.split()
    ):
        found += [*_parts((FOLDER / f"_{part}.lua").read_text()), part]
    return list(dict.fromkeys(found))


def _names(kind: str, texts: Sequence[str]) -> dict[str, Kind]:
    """The declarations of these texts. A name is required if one of them requires it."""
    found: dict[str, Kind] = {}
    for text in texts:
        for declared, words in _DECLARED.findall(text):
            if declared != kind:
                continue
            for name, mark in _NAME.findall(words):
                if name not in found or not mark:
                    found[name] = mark
    return found
