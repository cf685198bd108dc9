"""Brings a lab that an earlier version wrote to the present schema, once, whoever starts first.

A step brings every record from one schema to the next. It writes only through scripts that check the turn's token
(`Turn.key`, `Turn.token`), and may be broken off anywhere and begun again: the schema's number moves after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

from state.budgets import SET_ASIDE, in_seconds, milliseconds
from state.client import SCHEMA, Lab
from state.errors import Unavailable
from state.moves import GivenArgs
from state.presence import Presence
from state.records import Experiment
from state.snapshots import Snapshots

TURN_S = 15.0
"""A process that is silent for so long in the middle of a migration was killed: the next one goes on."""
PAGE = 1000


@dataclass(frozen=True)
class Turn:
    """The right to migrate a lab, for one process at a time."""

    lab: Lab
    token: str

    async def begin(self, found: int) -> str:
        """Take the turn, or prolong it: ours, busy, or moved."""
        turn: GivenArgs = {"token": self.token, "found": found, "turn_s": TURN_S}
        return str(await self.lab.move("begin_migration", args=turn))

    async def advance(self, before: int, *, last: bool) -> None:
        """A step is done.

        Raises:
            Unavailable: it is another's turn by now.
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


Step = Callable[[Turn], Awaitable[None]]


async def open_books(turn: Turn) -> None:
    """1 to 2: what each tag has spent and reserved, from its experiments and their attempts."""
    lab = turn.lab
    snapshots = Snapshots(lab)
    for name in await lab.command("ZRANGE", lab.keys("tags"), 0, -1):
        stored = await snapshots.experiments(name)
        found = [e.model_copy(update={"reserved_gpu_seconds": _set_aside(e)}) for e in stored]
        books = await snapshots.books(found)
        # a migration that was killed may have set aside for what an older process has finished since
        changed = [e for e, was in zip(found, stored, strict=True) if e.status in SET_ASIDE or e != was]
        for begin in range(0, max(1, len(changed)), PAGE):
            page = changed[begin : begin + PAGE]
            held = [e.reserved_gpu_seconds for e in page]
            answer = await lab.move(
                "fill_books",
                keys={
                    "tag": lab.keys.tag(name),
                    "experiments": [lab.keys.experiment(e.experiment_id) for e in page],
                },
                args={
                    "token": turn.token,
                    "reserved_gpu_seconds": in_seconds(books.reserved_ms),
                    "reserved_runs": books.reserved_runs,
                    "spent_gpu_seconds": in_seconds(books.spent_ms),
                    "spent_runs": books.spent_runs,
                    "held": ["" if s is None else in_seconds(milliseconds(s)) for s in held],
                },
            )
            if answer != "ok":
                raise _elsewhere(lab, "has taken over to bring")


def _set_aside(e: Experiment) -> float | None:
    return (e.budget_s or 0.0) if e.status in SET_ASIDE else None


# What 2 to 3 has to write, beside what policies lose:
# - `queue_round` of every experiment in `queue`, `queue:<gpu>`, `parked:<tag>` and `parked:<tag>:<gpu>` that is no
#   retest and whose score % 1e15 is not 0: floor(score % 1e15 / 1e6). The scores stay as they are.
# - `gpu_class` of every open experiment with a `gpu_id` that is no retest: `gpu_name` of that GPU.
# - `trace_id` of every `best:<tag>` and `best:<tag>:<key>`, where its experiment has one: register reads it there.
STEPS: Mapping[int, Step] = {1: open_books}
"""The step that leads on from each earlier schema."""


async def migrate(
    lab: Lab,
    found: int,
    *,
    alive_s: float = 15.0,
    before: Callable[[], Awaitable[object]] | None = None,
    steps: Mapping[int, Step] = STEPS,
    to: int = SCHEMA,
) -> None:
    """Bring a lab from the schema it was found with to the present one; `before` is done before the first step.

    Raises:
        Unavailable: processes of the older version were heard of within `alive_s`, or another process is at it.
            Asking again later helps.
    """
    older = [p.name for p in await Presence(lab).alive(alive_s) if int(p.facts.get("schema", 1)) < to]
    if older:
        raise Unavailable(
            f"the lab {lab.name!r} is to be brought from schema {found} to {to}, but processes of the older version"
            f" are alive: {', '.join(older[:5])}",
            hint="stop them: they would write what nobody reads any more",
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
        hint="wait for it: whoever waits goes on by itself",
        retry_after=2.0,
        fields={"migrating": True},
    )
