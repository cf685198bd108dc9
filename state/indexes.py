"""Indexes: sorted sets whose members name hashes, read with their hashes in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from state.client import Lab
from state.moves import Arg
from state.records import Record

R = TypeVar("R", bound=Record)


def members(
    lab: Lab,
    index: str,
    hashes: str | None = None,
    *,
    limit: int,
    offset: int = 0,
    low: float | str = "-inf",
    high: float | str = "+inf",
    newest: bool = False,
    fields: Sequence[str] | type[Record] = (),
    brief: bool = False,
    holding: str | None = None,
    texts: Sequence[str] = (),
    most_bytes: int | None = None,
) -> Sequence[Arg]:
    """A part of an index with its members' hashes, as a command of `Lab.pipeline` for `records` or `values`.

    `hashes`: the beginning of the hashes' keys, by default of experiments. Scores lie in [low, high], where "now" is
    Redis' clock. With `newest` the highest come first. `fields` are names, or a kind of record for `read_as`; without
    them whole hashes are read, with `brief` those of experiments without their constants and metrics. With `holding`
    members are left out whose first field does not hold this text. With `most_bytes` longer values of `fields` are
    left out, or cut where the field is one of `texts`.
    """
    return lab.reading(
        "read_members",
        keys={"index": index},
        args={
            "hashes": lab.keys.experiment("") if hashes is None else hashes,
            "low": low,
            "high": high,
            "offset": offset,
            "limit": limit,
            "newest": "yes" if newest else None,
            "fields": fields_in(fields) if isinstance(fields, type) else fields,
            "brief": "yes" if brief else None,
            "holding": holding,
            "texts": texts,
            "most_bytes": most_bytes,
        },
    )


def records(answer: Sequence[Any]) -> dict[str, dict[str, str]]:
    """The hashes by member, in the order of the index; empty where there is none."""
    return {member: fields_of(pairs) for member, pairs in answer}


def values(answer: Sequence[Any]) -> dict[str, list[str | None]]:
    """The members' values of the fields that were asked for."""
    return dict(answer)


@cache
def fields_in(kind: type[Record]) -> tuple[str, ...]:
    return tuple(kind.model_fields)


def read_as(kind: type[R], answer: Sequence[Any]) -> list[R]:
    """The members as records of a kind whose fields were asked for; what is not there is left out."""
    return [found for row in values(answer).values() if (found := row_as(kind, row)) is not None]


def row_as(kind: type[R], row: Sequence[str | None]) -> R | None:
    """A record of a kind whose fields were asked for; None where there is none."""
    if not any(row):
        return None
    return kind.parse(dict(zip(fields_in(kind), row, strict=True)))


def fields_of(pairs: Sequence[str]) -> dict[str, str]:
    """A hash from its fields and values by turns."""
    return dict(zip(pairs[::2], pairs[1::2], strict=True))
