"""Migrates a lab of an earlier version to the present schema, by the first process that starts.

A step brings every record from one schema to the next. It writes only by `Turn.write`, which checks the turn. It may
be killed at any point and begun again: the schema's number changes last.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

from state.budgets import SET_ASIDE, in_seconds, milliseconds
from state.client import SCHEMA, Lab
from state.codes import code_of
from state.errors import Unavailable
from state.experiments import Experiments
from state.moves import GivenArgs
from state.noise import noise_key, runs_at
from state.policy import known_values, validated
from state.pool import Pool
from state.presence import Presence
from state.records import RETESTED, Best, Experiment, Tag
from state.snapshots import Snapshots
from state.tokens import Tokens

TURN_S = 15.0
"""A migrating process that is silent for so long was killed: another one continues."""
PAGE = 1000

Changes = dict[str, Mapping[str, str | None]]
"""Fields of hashes, by key; None removes a field."""


@dataclass(frozen=True)
class Turn:
    """The right to migrate a lab, for one process at a time."""

    lab: Lab
    token: str

    async def begin(self, found: int) -> str:
        """Take the turn, or prolong it; answers `ours`, `busy`, or `moved` (the schema has changed)."""
        turn: GivenArgs = {"token": self.token, "found": found, "turn_s": TURN_S}
        return str(await self.lab.move("begin_migration", args=turn))

    async def write(self, changes: Changes) -> None:
        """Write these changes.

        Raises:
            Unavailable: another process has taken the turn.
        """
        rows = list(changes.items())
        for begin in range(0, len(rows), PAGE):
            page = rows[begin : begin + PAGE]
            answer = await self.lab.move(
                "rewrite_hashes",
                keys={"hashes": [key for key, _ in page]},
                args={"token": self.token, "fields": [_as_pairs(fields) for _, fields in page]},
            )
            if answer != "ok":
                raise _elsewhere(self.lab, "has taken over to bring")

    async def enter(self, indexes: Mapping[str, Mapping[str, float]]) -> None:
        """Enter members with their scores into indexes, by key.

        Raises:
            Unavailable: another process has taken the turn.
        """
        for key, members in indexes.items():
            rows = list(members.items())
            for begin in range(0, len(rows), PAGE):
                answer = await self.lab.move(
                    "enter_members",
                    keys={"index": key},
                    args={
                        "token": self.token,
                        "members": [f"{n!r} {m}" for m, n in rows[begin : begin + PAGE]],
                    },
                )
                if answer != "ok":
                    raise _elsewhere(self.lab, "has taken over to bring")

    async def close(self, at: float) -> None:
        """Close the lab, as of seconds since 1970.

        Raises:
            Unavailable: another process has taken the turn.
        """
        if await self.lab.move("close_lab", args={"token": self.token, "at": at}) != "ok":
            raise _elsewhere(self.lab, "has taken over to bring")

    async def advance(self, before: int, *, last: bool) -> None:
        """Raise the schema's number after a step.

        Raises:
            Unavailable: another process has taken the turn.
        """
        step: GivenArgs = {
            "token": self.token,
            "before": before,
            "after": before + 1,
            "last": 1 if last else None,
        }
        answer = await self.lab.move("advance_schema", args=step)
        if answer != "ok":
            raise _elsewhere(self.lab, "has taken over to bring")


def _as_pairs(fields: Mapping[str, str | None]) -> str:
    """JSON for `rewrite_hashes.lua`: pairs of name and value, or the name alone to remove a field."""
    return json.dumps([[name] if value is None else [name, value] for name, value in fields.items()])


Step = Callable[[Turn], Awaitable[None]]


async def open_books(turn: Turn) -> None:
    """1 to 2: add up what each tag has spent and reserved, from its experiments and their attempts."""
    lab = turn.lab
    snapshots = Snapshots(lab)
    for name in await _tags(lab):
        stored = await snapshots.experiments(name)
        found = [e.model_copy(update={"reserved_gpu_seconds": _set_aside(e)}) for e in stored]
        books = await snapshots.books(found)
        written: Changes = {
            lab.keys.tag(name): {
                "reserved_gpu_seconds": in_seconds(books.reserved_ms),
                "reserved_runs": str(books.reserved_runs),
                "spent_gpu_seconds": in_seconds(books.spent_ms),
                "spent_runs": str(books.spent_runs),
            }
        }
        # after a killed migration an older process may have finished an experiment that had a reservation
        for e, was in zip(found, stored, strict=True):
            if e.status in SET_ASIDE or e != was:
                held = e.reserved_gpu_seconds
                text = None if held is None else in_seconds(milliseconds(held))
                written[lab.keys.experiment(e.experiment_id)] = {"reserved_gpu_seconds": text}
        await turn.write(written)


def _set_aside(e: Experiment) -> float | None:
    return (e.budget_s or 0.0) if e.status in SET_ASIDE else None


async def strip_policies(turn: Turn) -> None:
    """2 to 3: remove policy values that no function reads."""
    keys = [turn.lab.keys("policy", name) for name in await _tags(turn.lab)]
    written: Changes = {}
    for key, stored in zip(keys, await turn.lab.hashes(keys), strict=True):
        before = json.loads(stored["values"])
        before.pop("sampler", None)  # a name of schema 2, with other values than today's
        values = known_values(before)
        written[key] = {"values": validated(values).model_dump_json()}
    await turn.write(written)


async def name_bests(turn: Turn) -> None:
    """2 to 3: copy code and trace of each best, of its chain and rivals, from their experiments."""
    lab = turn.lab
    keys = [key async for key in lab.scan("best:*")]
    bests = [Best.parse(stored) for stored in await lab.hashes(keys)]
    ids = {link.experiment_id for best in bests for link in (*best.standing(), *best.rivals)}
    found = {e.experiment_id: e for e in await Experiments(lab).many(sorted(ids))}

    written: Changes = {}
    for key, best in zip(keys, bests, strict=True):
        _, _, other_key = key.removeprefix(lab.keys("best:")).partition(":")
        named = {
            i: {"code": code_of(found[i], other_key or None), "trace_id": found[i].trace_id}
            for i in ids & found.keys()
        }
        links = {
            name: [link.model_copy(update=named.get(link.experiment_id, {})) for link in some]
            for name, some in (("chain", best.chain), ("rivals", best.rivals))
        }
        now = best.model_copy(update=links | named.get(best.experiment_id, {})).flat()
        written[key] = {name: now.get(name) for name in ("code", "trace_id", "chain", "rivals")}
    await turn.write(written)


async def class_runs(turn: Turn) -> None:
    """2 to 3: copy the GPU's class to every open experiment that has a GPU."""
    lab = turn.lab
    classes = {gpu.gpu_id: gpu.gpu_name for gpu in (await Pool(lab).roster()).gpus}
    found = (await Snapshots(lab).open_experiments(await _tags(lab), ())).values()
    await turn.write(
        {
            lab.keys.experiment(e.experiment_id): {"gpu_class": classes[e.gpu_id]}
            for e in found
            if e.gpu_class is None and e.gpu_id in classes and e.retest_of is None
        }
    )


async def number_rounds(turn: Turn) -> None:
    """2 to 3: write its round to every queued experiment; before, its place in the queue contained it."""
    lab = turn.lab
    queues = [lab.keys.queue(), *[key for some in ("queue:*", "parked:*") async for key in lab.scan(some)]]
    rows = await lab.pipeline([("ZRANGE", key, 0, -1, "WITHSCORES") for key in queues])
    places = {name: int(place) for row in rows for name, place in zip(row[::2], row[1::2], strict=True)}
    written: Changes = {}
    for e in await Experiments(lab).many(list(places)):
        if e.retest_of is None and (within := places[e.experiment_id] % PRIORITY_STEP):
            round_ = within // ROUND_STEP
            written[lab.keys.experiment(e.experiment_id)] = {"queue_round": str(round_)}
    await turn.write(written)


PRIORITY_STEP, ROUND_STEP = 10**15, 10**6
"""A place in schema 2 is priority * PRIORITY_STEP + round of the agent * ROUND_STEP + order of arrival."""


async def index_traces(turn: Turn) -> None:
    """3 to 4: list what was made for each trace."""
    lab = turn.lab
    for name in await _tags(lab):
        made_for: dict[str, dict[str, float]] = {}
        for e in await Snapshots(lab).experiments(name):
            if e.trace_id is not None:
                made_for.setdefault(lab.keys.of_trace(e.trace_id), {})[e.experiment_id] = e.number
        await turn.enter(made_for)


async def index_results(turn: Turn) -> None:
    """4 to 5: list keeps and all other results by value, and the runs of each code; count finish numbers."""
    lab = turn.lab
    snapshots = Snapshots(lab)
    for name in await _tags(lab):
        tag = Tag.parse(await lab.hash(lab.keys.tag(name)))
        sign = 1.0 if tag.direction == "minimize" else -1.0
        indexes: dict[str, dict[str, float]] = {}
        found = await snapshots.experiments(name)
        for e in (*found, *await snapshots.retests(found)):
            if e.judged is None or e.finished_at is None:
                continue
            if e.status in ("keep", "discard"):
                standing = lab.keys.standing(name, e.best_key, e.status, improved=e.improved)
                indexes.setdefault(standing, {})[e.experiment_id] = sign * e.judged
            if e.status in ("keep", "discard", RETESTED):
                noise = noise_key(lab.keys, name, e.gpu_class)
                runs = indexes.setdefault(runs_at(noise, code_of(e, e.best_key)), {})
                runs[e.experiment_id] = e.finished_at
        await turn.enter(indexes)
        await turn.write({lab.keys.tag(name): {"finishes": str(tag.total)}})


async def note_measured(turn: Turn) -> None:
    """4 to 5: say of each tag whether the lab has measured a run of it, and by how much a keep has gained at most."""
    lab = turn.lab
    for name in await _tags(lab):
        found = [e for e in await Snapshots(lab).experiments(name) if e.best_key is None]
        judged = [e for e in found if e.status in ("keep", "discard") and e.val_bpb is not None]
        kept = [e for e in judged if e.status == "keep" and e.improved and e.trust != "provisional"]
        largest = max((e.delta or 0.0 for e in kept), default=0.0)
        learned = {
            "lab_measured": "true" if any(e.was_trained_here for e in judged) else "false",
            "largest_gain": repr(largest) if largest > 0 else None,
        }
        await turn.write({lab.keys.tag(name): learned})


async def count_worker_gpus(turn: Turn) -> None:
    """5 to 6: count the GPUs that the bearers of workers' tokens have registered."""
    key = turn.lab.keys("worker_gpus")
    gpus = (await Pool(turn.lab).roster()).gpus
    counted = Counter(gpu.owner for gpu in gpus if gpu.owner is not None and not gpu.of_agent)
    # after a killed migration an older process may have let GPUs go
    before = dict.fromkeys(await turn.lab.hash(key))
    if written := before | {owner: str(n) for owner, n in counted.items()}:
        await turn.write({key: written})


async def close_labs(turn: Turn) -> None:
    """6 to 7: note when the first operator's token was issued; before, a lab was closed by any token."""
    issued = (
        t.created_at for t in await Tokens(turn.lab).all() if t.role == "operator" and t.kind == "access"
    )
    if (first := min(issued, default=None)) is not None:
        await turn.close(first)


async def _tags(lab: Lab) -> list[str]:
    names: list[str] = await lab.command("ZRANGE", lab.keys("tags"), 0, -1)
    return names


def in_turn(*steps: Step) -> Step:
    """Several steps as one."""

    async def every(turn: Turn) -> None:
        for step in steps:
            await step(turn)

    return every


STEPS: Mapping[int, Step] = {
    1: open_books,
    2: in_turn(strip_policies, name_bests, class_runs, number_rounds),
    3: index_traces,
    4: in_turn(index_results, note_measured),
    5: count_worker_gpus,
    6: close_labs,
}
"""The step from each earlier schema to the next one."""


async def migrate(
    lab: Lab,
    found: int,
    *,
    alive_s: float = 15.0,
    before: Callable[[], Awaitable[object]] | None = None,
    steps: Mapping[int, Step] = STEPS,
    to: int = SCHEMA,
) -> None:
    """Migrate a lab from the schema `found` to the present one; `before` is called before the first step.

    Raises:
        Unavailable: processes of an older version were alive within `alive_s`, or another process migrates the lab;
            try again later.
    """
    older = [p.name for p in await Presence(lab).alive(alive_s) if int(p.facts.get("schema", 1)) < to]
    if older:
        raise Unavailable(
            f"the lab {lab.name!r} has to be migrated from schema {found} to {to}, but processes of the older version"
            f" are alive: {', '.join(older[:5])}",
            hint="stop them: they would write records of the old schema",
            retry_after=2.0,
        )
    turn = Turn(lab, secrets.token_hex(8))
    match await turn.begin(found):
        case "busy":
            raise _elsewhere(lab, "brings")
        case "moved":
            return
    async with _prolonged(turn, found):
        if before is not None:
            await before()
        for schema in range(found, to):
            await steps[schema](turn)
            await turn.advance(schema, last=schema + 1 == to)


@contextlib.asynccontextmanager
async def _prolonged(turn: Turn, found: int) -> AsyncIterator[None]:
    async def prolong() -> None:
        while True:
            await asyncio.sleep(TURN_S / 4)
            with contextlib.suppress(Unavailable):
                await turn.begin(found)

    prolonging = asyncio.create_task(prolong())
    try:
        yield
    finally:
        prolonging.cancel()


def _elsewhere(lab: Lab, does: str) -> Unavailable:
    return Unavailable(
        f"another process {does} the lab {lab.name!r} to a newer schema",
        hint="wait: the migration ends by itself",
        retry_after=2.0,
        fields={"migrating": True},
    )
