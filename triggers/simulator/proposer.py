"""A scripted author, which proposes dimensions over HTTP as an agent would, and notes what becomes of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from functions.swarm.rules.simulating import Hidden
from functions.trust.rules.audit_tags import SearchProgress
from state.ids import number_of
from triggers.simulator.wire import Book, Wire

AGAIN_AFTER = 20
"""Results after which it proposes once more, unasked: by then many searches do not stall."""
LOOK_S = 0.1
PAGE = 500
"""Most events of one answer."""


@dataclass
class Fortune:
    """What becomes of one proposed dimension."""

    hidden: Hidden
    proposed: int = 0
    counted_at: list[int] = field(default_factory=list)
    """Results that the swarm had when a proposal counted."""
    wrongly: int = 0
    """Of these, those that came while the search improved."""
    begun: Mapping[str, Any] | None = None
    """The event of its trial's begin; None: it had none."""
    ended: Mapping[str, Any] | None = None
    """The same of its end."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """As the lab lists it at the end; empty: it does not."""

    def share(self, book: Book) -> tuple[int, int]:
        """Runs that varied it, of all that were handed out during its trial, retests aside."""
        if self.begun is None:
            return 0, 0
        first, last = self.begun["number"], math.inf if self.ended is None else self.ended["number"]
        during = {run for run in book.runs if "." not in run and first < number_of(run) <= last}
        return len(during & book.tried.get(self.hidden.name, set())), len(during)


class Proposer:
    """Proposes hidden constants whenever the lab asks for dimensions, and a few results later."""

    def __init__(self, hidden: Sequence[Hidden], wire: Wire, book: Book, tag: str, token: str | None) -> None:
        self.fortunes = {each.name: Fortune(each) for each in hidden}
        self._wire = wire
        self._book = book
        self._tag = tag
        self._token = token
        self._heard: str | None = None
        """The newest event that it has heard."""
        self._again_at: int | None = None
        self._course = SearchProgress()

    async def work(self) -> None:
        """Listen and propose, until every trial is over: then the simulation is. Raises as `Wire.ask`."""
        while not all(each.ended for each in self.fortunes.values()):
            if await self._hear() or self._is_due():
                await self._propose()
            await asyncio.sleep(LOOK_S)
        self._book.is_over = True

    async def look(self) -> None:
        """Note how the lab lists what was proposed. Raises as `Wire.ask`."""
        await self._hear()
        listed = await self._ask("GET", f"/dimension_proposals?tag={self._tag}")
        for each in listed["proposals"]:
            if each["name"] in self.fortunes:
                self.fortunes[each["name"]].shown = each

    async def _hear(self) -> bool:
        """Take the new events in; whether dimensions are wanted by now."""
        is_wanted = False
        while True:
            since = {} if self._heard is None else {"since": self._heard}
            asked = {"tag": self._tag, "order": "oldest", "limit": PAGE, **since}
            events = (await self._ask("POST", "/api/event/list", asked))["events"]
            for event in events:
                self._heard = event["id"]
                self._course.hear(event["type"], event["data"])
                self._note(event["type"], event["data"])
                is_wanted |= event["type"] == "dimension.wanted"
            if len(events) < PAGE:
                break
        if is_wanted:
            self._again_at = self._course.results + AGAIN_AFTER
        return is_wanted

    def _note(self, kind: str, data: Mapping[str, Any]) -> None:
        fortune = self.fortunes.get(data.get("name", ""))
        match kind:
            case "dimension.proposed" if fortune and data["signal_count"] > len(fortune.counted_at):
                fortune.counted_at.append(self._course.results)
                fortune.wrongly += self._course.is_improving
            case "dimension.adopted" if fortune:
                fortune.begun = data
            case "dimension.promoted" | "dimension.reverted" if fortune:
                fortune.ended = data
            case _:
                pass

    def _is_due(self) -> bool:
        """Whether it is time to propose unasked."""
        if self._again_at is None or self._course.results < self._again_at:
            return False
        self._again_at = None
        return True

    async def _propose(self) -> None:
        for fortune in self.fortunes.values():
            body = {"tag": self._tag, **fortune.hidden.proposal}
            await self._ask("POST", "/api/dimension/propose", body)
            fortune.proposed += 1

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return await self._wire.ask("propose", method, path, body, token=self._token, is_kept=True)
