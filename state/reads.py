"""Base of the stores, and reads that several stores share: how each is asked, and what its reply means.

No guard watches these reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypedDict, TypeVar, Unpack, cast

from pydantic import BaseModel

from state.change import Decide, Read, loosely
from state.client import Lab
from state.facts import Spread
from state.keys import Keys
from state.moves import Arg, Prepared, script_command
from state.noise import class_id, noise_key
from state.policy import Policy, read_policy
from state.records import Best, Experiment, Gpu, GpuState, Mention, Record, Sketch, Strategy, Tag
from state.refusals import no_experiment, unknown_tag

T = TypeVar("T")


class Store:
    """Reads and writes of one subject in a lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._keys = lab.keys

    async def change(self, decide: Decide[T], *, in_turn: str | None = None) -> T:
        """Change the lab as `Lab.change`. This process' changes of this subject take turns by a tag's name."""
        return await self._lab.change(decide, in_turn=in_turn and f"{type(self).__name__} {in_turn}")

    async def now(self) -> float:
        """Redis' clock, in seconds since 1970."""
        return await self._lab.now()


STEPS = 1000
"""Experiments that one call looks at for a base, at most; it answers where to go on."""
M = TypeVar("M", bound=BaseModel)
R = TypeVar("R", bound=Record)

ACTIVE_S = 600.0
"""A worker counts as active so many seconds after it was last heard of."""


class Part(TypedDict, total=False):
    """Which members of an index are read."""

    limit: int
    offset: int
    low: float | str
    """Lowest score."""
    high: float | str
    """Highest score; "now" is Redis' clock."""
    newest: bool
    """The highest come first."""


def members(
    lab: Lab,
    index: str,
    hashes: str | None = None,
    *,
    fields: Sequence[str] = (),
    limit: int,
    offset: int = 0,
    low: float | str = "-inf",
    high: float | str = "+inf",
    newest: bool = False,
    brief: bool = False,
    holding: str | None = None,
    texts: Sequence[str] = (),
    most_bytes: int | None = None,
) -> Read[dict[str, Any]]:
    """A `Part` of an index, in its order: by member its whole hash, or the list of the values of `fields`.

    `hashes`: the beginning of the hashes' keys, by default of experiments. With `brief` experiments are read without
    their constants and metrics. With `holding` members are left out whose first field does not hold this text. With
    `most_bytes` longer values of `fields` are left out, or cut where the field is one of `texts`.
    """
    command = _members_command(
        lab.keys,
        index,
        hashes=lab.keys.experiment("") if hashes is None else hashes,
        low=low,
        high=high,
        offset=offset,
        limit=limit,
        newest="yes" if newest else None,
        fields=tuple(fields),
        brief="yes" if brief else None,
        holding=holding,
        texts=tuple(texts),
        most_bytes=most_bytes,
    )
    return Read(command, dict if fields else _hashes, None)


@lru_cache(1024)
def _members_command(keys: Keys, index: str, **args: Arg | tuple[str, ...] | None) -> Prepared:
    """Remembered, because a brief asks for nine indexes, and making the words of a script takes longer."""
    return Prepared(script_command(keys, "read_members", keys={"index": index}, args=args))


def rows(
    lab: Lab, kind: type[R], index: str, hashes: str | None = None, **part: Unpack[Part]
) -> Read[list[R]]:
    """The same as records of a kind, whose fields alone are read."""

    def meaning(found: Mapping[str, Sequence[str | None]]) -> list[R]:
        return [record_of(row) for row in found.values() if any(row)]

    def record_of(row: Sequence[str | None]) -> R:
        if kind in _ASKED_OFTEN and sum(map(len, filter(None, row))) <= _SHORT:
            return cast("R", _remembered(kind, tuple(row)))
        return _record(kind, row)

    return members(lab, index, hashes, fields=fields_in(kind), **part).to(meaning)


_ASKED_OFTEN = (Sketch, Mention)
"""Kinds of records whose newest few every brief and every suggestion shows."""
_SHORT = 2000
"""Characters of a record that is remembered; an error may have 65,536."""


@lru_cache(512)
def _remembered(kind: type[R], row: tuple[str | None, ...]) -> R:
    """The record with these texts, at most 512 of them."""
    return _record(kind, row)


def records(
    lab: Lab,
    kind: type[R],
    index: str,
    hashes: str | None = None,
    *,
    brief: bool = False,
    **part: Unpack[Part],
) -> Read[list[R]]:
    """The same as records of a kind, from whole hashes."""
    return members(lab, index, hashes, brief=brief, **part).to(
        lambda found: [kind.parse(fields) for fields in found.values() if fields]
    )


def _hashes(answer: Sequence[Any]) -> dict[str, dict[str, str]]:
    return {member: fields_of(pairs) for member, pairs in answer}


@cache
def fields_in(kind: type[Record]) -> tuple[str, ...]:
    return tuple(kind.model_fields)


def rows_as(kind: type[R], found: Mapping[str, Sequence[str | None]]) -> list[R]:
    """Members as records of a kind whose fields were asked for; what is not there is left out."""
    return [one for row in found.values() if (one := row_as(kind, row)) is not None]


def row_as(kind: type[R], row: Sequence[str | None]) -> R | None:
    """A record of a kind whose fields were asked for; None where there is none."""
    return _record(kind, row) if any(row) else None


def _record(kind: type[R], row: Sequence[str | None]) -> R:
    return kind.parse(dict(zip(fields_in(kind), row, strict=True)))


def fields_of(pairs: Sequence[str]) -> dict[str, str]:
    """A hash from its fields and values by turns."""
    words = iter(pairs)
    return dict(zip(words, words, strict=True))


def number(*command: Arg) -> Read[int]:
    """A counter; 0 where there is none."""
    return loosely(*command, to=lambda reply: int(reply or 0))


def models(kind: type[M], key: str) -> Read[list[M]]:
    """The values of a hash, each a model as JSON; in no order."""
    return loosely("HVALS", key, to=lambda texts: [kind.model_validate_json(text) for text in texts])


def experiment(keys: Keys, experiment_id: str) -> Read[Experiment]:
    """Raises NotFound: no such experiment."""
    return loosely("HGETALL", keys.experiment(experiment_id), to=lambda it: experiment_in(it, experiment_id))


def experiment_in(stored: Mapping[str, str], experiment_id: str) -> Experiment:
    """The experiment that a hash holds. Raises NotFound: no such experiment."""
    if "experiment_id" not in stored:
        raise no_experiment(experiment_id)
    return Experiment.parse(stored)


def tag(keys: Keys, name: str) -> Read[Tag]:
    """Raises NotFound: no such tag."""
    return loosely("HGETALL", keys.tag(name), to=lambda stored: tag_in(stored, name))


def tag_in(stored: Mapping[str, str], name: str) -> Tag:
    """The tag that a hash holds. Raises NotFound: no such tag."""
    if not stored:
        raise unknown_tag(name)
    return Tag.parse(stored)


def policy(keys: Keys, name: str) -> Read[Policy]:
    """The policy of a tag; the defaults where there is no such tag."""
    return loosely("HGET", keys("policy", name), "values", to=lambda text: read_policy(text or "{}"))


def strategy(keys: Keys, name: str) -> Read[Strategy]:
    """The strategy of a tag that there is."""
    return loosely("HGETALL", keys("strategy", name), to=Strategy.parse)


def best(keys: Keys, name: str, other_key: str | None = None) -> Read[Best | None]:
    """The best of a tag under its main comparability key, or under another; None: nothing was kept."""
    return loosely("HGETALL", keys.best(name, other_key), to=Best.found)


def best_config(lab: Lab, name: str) -> Read[dict[str, Any]]:
    """The config of a tag's best keep; empty: it has no keep, or its best has no config.

    It may be older than the runs that a search reads.
    """
    best = members(lab, lab.keys.keeps(name), limit=1, fields=("config_delta",))
    return best.to(lambda found: next((json.loads(text) for (text,) in found.values() if text), {}))


def categories(keys: Keys, name: str) -> Read[dict[str, tuple[int, int]]]:
    """Total and kept of every category of a tag that was tried."""

    def counted(stored: Mapping[str, str]) -> dict[str, tuple[int, int]]:
        names = sorted({field.rpartition(":")[0] for field in stored})
        return {n: (int(stored.get(f"{n}:total", 0)), int(stored.get(f"{n}:kept", 0))) for n in names}

    return loosely("HGETALL", keys("categories", name), to=counted)


def crashes_in_a_row(keys: Keys, name: str) -> Read[int]:
    """Crashes of a tag since its last result."""
    return number("HGET", keys("crashes", name), "consecutive")


def active_workers(lab: Lab, name: str) -> Read[int]:
    """Workers of a tag's swarm that were heard of within `ACTIVE_S`."""
    within = {"within_s": ACTIVE_S}
    return number(*lab.reading("count_seen", keys={"index": lab.keys("swarm_seen", name)}, args=within))


def noise(keys: Keys, name: str, gpu_class: str | None) -> Read[Spread]:
    """The noise of a tag and GPU class, over all repeats."""
    return loosely("HMGET", noise_key(keys, name, gpu_class), "squares", "df", to=_spread)


def main_noise(lab: Lab, name: str) -> Read[Spread]:
    """The noise of a tag's main class of GPU."""
    of_tag = noise_key(lab.keys, name, None).removesuffix(class_id(None))
    args = {"tag": name, "noise": of_tag, "no_class": class_id(None)}
    return loosely(*lab.reading("read_noise", args=args), to=_spread)


def _spread(stored: Sequence[str | None]) -> Spread:
    squares, df = stored
    return Spread(int(df or 0), float(squares or 0))


def gpus(lab: Lab, index: str = "gpus") -> Read[list[Gpu]]:
    """The GPUs of an index; every one, oldest first."""
    return records(lab, Gpu, lab.keys(index), lab.keys.gpu(""), limit=-1)


def slots(lab: Lab) -> Read[list[GpuState]]:
    """Every GPU with what agents are told of it."""
    return rows(lab, GpuState, lab.keys("gpus"), lab.keys.gpu(""), limit=-1)


def base_above(lab: Lab, key: str) -> Read[Sequence[Any]]:
    """The kept experiment nearest to the one of this key; `base_found` takes the answer."""
    args: dict[str, Arg] = {"experiments": lab.keys.experiment(""), "most": STEPS, "base": "yes"}
    return loosely(*lab.reading("walk_up", keys={"starts": [key]}, args=args))


async def base_found(lab: Lab, answer: Sequence[Any]) -> Experiment | None:
    """The experiment that `base_above` led to, from its answer on; None: there is none."""
    while answer[0] == "on":
        (answer,) = await lab.read(base_above(lab, answer[1]))
    return Experiment.parse(fields_of(answer[1])) if answer[0] == "found" else None


def above(lab: Lab, ids: Sequence[str], most: int) -> Read[tuple[dict[str, Experiment], bool]]:
    """These and their ancestors by id, `most` levels up, without constants and metrics; and whether that is all.

    With `most` 1 they are these alone.
    """

    def walked(answer: Sequence[Any]) -> tuple[dict[str, Experiment], bool]:
        found = [Experiment.parse(fields_of(pairs)) for pairs in answer[1:]]
        return {e.experiment_id: e for e in found}, answer[0] == "whole"

    args: dict[str, Arg] = {"experiments": lab.keys.experiment(""), "most": most}
    starts = [lab.keys.experiment(name) for name in ids]
    return loosely(*lab.reading("walk_up", keys={"starts": starts}, args=args), to=walked)


def ancestry(known: Mapping[str, Experiment]) -> dict[str, Experiment]:
    """Experiments by id. One that is not among them is nobody's parent."""
    return {
        name: e
        if all(parent in known for parent in e.parent_ids)
        else e.model_copy(update={"parent_ids": [parent for parent in e.parent_ids if parent in known]})
        for name, e in known.items()
    }
