"""Base of records: a frozen value with its text form in a Redis hash. Every float comes back exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import repeat
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json, to_json

M = TypeVar("M", bound=BaseModel)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC; a datetime without a zone is written faster


class Finite(BaseModel):
    """A frozen value whose numbers are finite. `dumps` sees and refuses others, which came in by `model_copy`."""

    model_config = ConfigDict(
        frozen=True, allow_inf_nan=False, ser_json_inf_nan="constants", defer_build=True
    )


class Record(Finite):
    """A frozen value in one Redis hash. A field that is None is not stored."""

    @classmethod
    def parse(cls, fields: Mapping[str, str | None]) -> Self:
        return cls.model_validate(cls.values(fields))

    @classmethod
    def found(cls, fields: Mapping[str, str | None] | None) -> Self | None:
        """The same; None for an empty hash."""
        return cls.model_validate(cls.values(fields)) if fields else None

    @classmethod
    def values(cls, fields: Mapping[str, str | None]) -> dict[str, Any]:
        """The fields that are there, lists and objects read; pydantic reads the rest from its text."""
        values: dict[str, Any] = dict(fields)
        if not all(values.values()):
            values = {name: text for name, text in values.items() if text}
        for name in _structured(cls):
            if name in values:
                values[name] = from_json(values[name])
        return values

    def flat(self) -> dict[str, str]:
        """The fields of a hash."""
        return flatten(vars(self))


def flatten(values: Mapping[str, Any]) -> dict[str, str]:
    """Text stays text, everything else is JSON; NaN is refused. Raises ValueError: NaN or infinity."""
    flat = {}
    for name, value in values.items():  # no call for a text or a number: a record has dozens
        if value is None:
            continue
        kind = type(value)
        if kind is str:
            flat[name] = value
        elif kind is int or (kind is float and isfinite(value)):
            flat[name] = repr(value)
        elif kind is bool:
            flat[name] = "true" if value else "false"
        else:
            flat[name] = str(value) if isinstance(value, str) else dumps(value)
    return flat


def dumps(value: Any) -> str:
    """A value as JSON, without fields of models that are None. Raises ValueError: NaN or infinity."""
    text = to_json(value, exclude_none=True, inf_nan_mode="constants").decode()
    if "NaN" in text or "Infinity" in text:  # a number, or a word of a text
        json.dumps(from_json(text), allow_nan=False)
    return text


def words(fields: Mapping[str, str]) -> list[str]:
    return [word for field in fields.items() for word in field]


@cache
def _structured(cls: type[Record]) -> frozenset[str]:
    """Names of the fields that are lists or objects; pydantic reads text, numbers and booleans from text itself."""
    return frozenset(name for name, info in cls.model_fields.items() if not _is_plain(info.annotation))


def _is_plain(annotation: Any) -> bool:
    if get_origin(annotation) in (UnionType, Union):  # a Literal or None is the older kind
        return all(_is_plain(a) for a in get_args(annotation))
    if get_origin(annotation) is Literal:
        return all(isinstance(a, str) for a in get_args(annotation))
    return annotation in (str, int, float, bool, NoneType)


def view_of(kind: type[M], found: Any, **other: Any) -> M:
    """A view with the fields `other`, and those of `found` that have the same names."""
    names = _common(kind, found.__class__)  # no comprehension: it would be one more call for each view
    return kind(**(dict(zip(names, map(getattr, repeat(found), names), strict=True)) | other))


@cache
def _common(kind: type[BaseModel], found: Any) -> frozenset[str]:
    has = found.model_fields if issubclass(found, BaseModel) else found.__dataclass_fields__
    return frozenset(kind.model_fields.keys() & has.keys())


def stamped(seconds: float | None) -> str | None:
    """As `stamp`; None stays None."""
    return None if seconds is None else stamp(seconds)


def stamp(seconds: float) -> str:
    """Seconds of Redis' clock as RFC 3339 in UTC, milliseconds kept."""
    return (_EPOCH + timedelta(0, seconds)).isoformat("T", "milliseconds") + "Z"


Role = Literal["viewer", "agent", "worker", "operator"]
"""Roles of callers: a viewer reads, an agent reads and researches, a worker serves its own GPUs."""


ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class UsedPatches:
    """The patches that are needed at hand, by digest."""

    uses: str
    """Changes whenever a patch is used anew."""
    digests: frozenset[str]


@dataclass(frozen=True)
class EndedRun:
    """A run that was not kept, with its patches in Redis."""

    finished_at: float
    digests: frozenset[str]
