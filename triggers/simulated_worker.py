"""One simulated worker of a swarm: it does what `nightjar join` does, but for the training.

A scripted author proposes dimensions over HTTP as an agent would, and notes what becomes of them."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from functions.runs.rules.ticks import MOST_PROGRESS
from functions.swarm.rules.simulating import Death, Fate, Faults, Hidden, fate, metric_with
from functions.trust.rules.audit_tags import Acknowledged, SearchProgress
from state.errors import Unavailable
from state.ids import number_of
from triggers.simulated_wire import Book, Refused, Wire, WireRequest

TICKS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
GPUS: Mapping[str, float] = {"Simulated A100": 0.02, "Simulated H100": 0.0}
"""By how much a GPU's baseline is above the best one's: a slower one trains fewer steps in its budget."""
STOPPED = "stopped early, as the server said"


@dataclass(frozen=True)
class SimulatedPace:
    """How the time of a simulation runs."""

    speed: float
    """Simulated seconds in a second."""
    budget_s: float
    """Simulated seconds that stand for one second of a server's budget."""
    lost_after_s: float
    """Seconds without a word after which the server counts a run as lost; for foreign servers a run's own time."""

    def simulated_s(self, budget: float) -> float:
        """Simulated seconds of a whole budget."""
        return budget * self.budget_s

    def real_s(self, budget: float) -> float:
        """Seconds that it takes here."""
        return self.simulated_s(budget) / self.speed


class Worker:
    """A worker with a name and a token of its own."""

    def __init__(
        self,
        name: str,
        wire: Wire,
        book: Book,
        pace: SimulatedPace,
        faults: Faults,
        seed: str,
        hidden: Sequence[Hidden] = (),
    ) -> None:
        self.name = name
        self.hidden = hidden
        self.token: str | None = None
        self._wire = wire
        self.book = book
        self.pace = pace
        self.faults = faults
        self.chance = Random(f"{seed}/{name}")
        self._gpu = self.chance.choice(sorted(GPUS))
        self.baseline = self.measured({}, 1.0)

    async def join(self, enroll_token: str | None) -> None:
        """Enter the swarm, under another name if the token was lost. Raises Refused: it may not."""
        enrolling = {} if enroll_token is None else {"enroll_token": enroll_token}
        while True:
            body = {"worker_id": self.name, "gpu_type": self._gpu, "baseline_bpb": self.baseline, **enrolling}
            try:
                welcome = await self._wire.ask("register", "POST", "/register", body, is_kept=True)
            except Refused as problem:
                if not problem.is_repeat:
                    raise
                self.name = f"{self.name}-anew"
            else:
                self.token = welcome["worker_token"]
                return

    async def work(self, rounds: int, death: Death | None = None) -> None:
        """Run so many configs, unless it dies or all is over before; what goes wrong is noted."""
        for nth in range(rounds):
            if self.book.is_over:
                return
            dies_at = death.progress if death is not None and death.nth == nth else None
            try:
                is_done = await self.one_run(dies_at)
            except (Refused, Unavailable) as problem:
                self.book.faults.append(f"{self.name}: {problem}")
                is_done = True
            if dies_at is not None:
                self.book.rounds_left[self.name] = rounds - nth - is_done
                return

    async def one_run(self, dies_at: float | None = None) -> bool:
        """Ask, report, send the result, sync; False: it died on the way. Raises as `Wire.ask`."""
        given = await self.twice("next_config", "GET", f"/next_config/{self.name}")
        config, run_id = given["config_delta"], given["run_id"]
        text = json.dumps(config, sort_keys=True)
        if run_id not in self.book.runs:
            self.book.runs.add(run_id)
            self.book.configs[text] += 1
            for each in self.hidden:
                if each.name in config:
                    self.book.tried.setdefault(each.name, set()).add(run_id)
        run = SimulatedRun(self, run_id, config, given["budget_seconds"], fate(self.faults, self.chance))
        if not await run.trained(dies_at):
            self.book.abandoned[run_id] = text
            return False
        await run.send()
        await self.ask("sync", "GET", f"/sync/{self.name}")
        return True

    # -- what a run needs of its worker

    def measured(self, config: Mapping[str, Any], progress: float) -> float:
        return round(metric_with(self.hidden, config, progress, self.chance) + GPUS[self._gpu], 6)

    async def ask(self, call: str, method: str, path: str, body: Any = None, due: float | None = None) -> Any:
        return await self._wire.ask(call, method, path, body, token=self.token, due=due)

    async def twice(
        self, call: str, method: str, path: str, body: Any = None, due: float | None = None
    ) -> Any:
        """The same, and for some a second time at once: one of both answers, a stop before all others."""
        if self.chance.random() >= self.faults.duplicates:
            return await self.ask(call, method, path, body, due)
        self.book.duplicates += 1
        request = WireRequest(call, method, path, body, self.token)
        answers = await asyncio.gather(*(self._wire.answer(request, due) for _ in range(2)))
        return max(answers, key=lambda answer: answer.get("action") == "stop")


class SimulatedRun:
    def __init__(
        self, worker: Worker, run_id: str, config: Mapping[str, Any], budget: float, its: Fate
    ) -> None:
        self.run_id = run_id
        self._of = worker
        self._book = worker.book
        self._config = config
        self._budget = budget
        self._fate = its
        self._end = 1.0
        self._progress = 0.0
        self._is_stopped = False
        self._held: dict[str, Any] | None = None
        self._begun = asyncio.get_running_loop().time()

    async def trained(self, dies_at: float | None) -> bool:
        """Train to the end, or until it is stopped or crashes; False: its worker has died."""
        crashes_at = self._fate.crashes_at
        last = self._end if crashes_at is None else crashes_at
        for progress in self._points():
            if progress > (last if dies_at is None else min(last, dies_at)):
                break
            await self._until(progress)
            await self._report(progress)
            if self._is_stopped:
                break
            last = self._end if crashes_at is None else crashes_at
        await self._release()
        end = last if dies_at is None else min(last, dies_at)
        if not self._is_stopped:
            await self._until(end)
        self._account(end)
        return dies_at is None or self._is_stopped

    def _points(self) -> Iterator[float]:
        """When it reports: at a tenth, at each fifth, and in an extension half way and at its end."""
        yield from TICKS
        if self._end > 1.0:
            yield (1.0 + self._end) / 2
            yield self._end

    def _due(self, progress: float) -> float:
        """When it is so far, on the loop's clock."""
        return self._begun + progress * self._of.pace.real_s(self._budget)

    async def _until(self, progress: float) -> None:
        self._progress = progress
        await asyncio.sleep(max(0.0, self._due(progress) - asyncio.get_running_loop().time()))

    async def _report(self, progress: float) -> None:
        """Tick; some ticks wait until the next one was sent."""
        of, due = self._of, self._due(progress)
        metric = of.measured(self._config, progress)
        body = {"id": self.run_id, "p": progress, "m": metric, "d": metric - of.baseline}
        if self._held is None and of.chance.random() < of.faults.reordered:
            self._held = body
            return
        await self._tick(body, due)
        await self._release()

    async def _release(self) -> None:
        """Send the tick that was held back."""
        if self._held is not None:
            body, self._held = self._held, None
            self._book.reordered += 1
            await self._tick(body, asyncio.get_running_loop().time())

    async def _tick(self, body: Mapping[str, Any], due: float) -> None:
        told = await self._of.twice("tick", "POST", "/tick", body, due)
        if told.get("action") == "stop":
            if not self._is_stopped:
                self._book.kills += 1
                self._book.acknowledged[self.run_id] = Acknowledged(self._of.name, None, is_stopped=True)
            self._is_stopped = True
        elif told.get("action") == "extend":
            self._book.told_to_extend += self._end == 1.0
            self._end = min(MOST_PROGRESS, max(1.0, round(told["budget"] / self._budget, 3)))

    def _account(self, end: float) -> None:
        whole_s = self._of.pace.simulated_s(self._budget)
        used = self._progress if self._is_stopped else end
        self._book.trained_s += used * whole_s
        self._book.extra_s += max(0.0, used - 1.0) * whole_s
        if self._is_stopped:
            self._book.saved_s += max(0.0, 1.0 - used) * whole_s

    async def send(self) -> None:
        """Send the result: late where it straggles, and for some once more after it was acknowledged."""
        of = self._of
        has_crashed = self._fate.crashes_at is not None and not self._is_stopped
        if self._fate.is_late and not self._is_stopped:
            self._book.late += 1
            await asyncio.sleep(self._fate.late_by * of.pace.lost_after_s)
        value = None
        if not (has_crashed or self._is_stopped):  # an extended one has learned more
            value = of.measured(self._config, self._end)
        error = STOPPED if self._is_stopped else "RuntimeError: simulated" if has_crashed else None
        body = {
            "worker_id": of.name,
            "exp_id": self.run_id,
            "config": self._config,
            "config_delta": self._config,
            "val_bpb": value,
            "delta_bpb": None if value is None else value - of.baseline,
            "duration_seconds": round(self._progress * of.pace.simulated_s(self._budget), 3),
            "error": error,
        }
        await of.twice("result", "POST", "/result", body)
        self._book.crashes += has_crashed
        self._book.acknowledged[self.run_id] = Acknowledged(of.name, value, is_stopped=self._is_stopped)
        if value is not None:
            delta = value - of.baseline
            best = self._book.best_delta
            self._book.best_delta = delta if best is None else min(delta, best)
        if of.chance.random() < of.faults.repeats:
            self._book.repeats += 2
            await of.ask("result", "POST", "/result", body)
            tick = {"id": self.run_id, "p": 0.2, "m": of.baseline, "d": 0.0}
            await of.ask("tick", "POST", "/tick", tick)


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
