"""The pool and the experiments behave as if one call came after the other, however many are made at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from functions.kernel.process.lifecycle import Process, opened
from state.errors import Conflict
from state.experiments import Experiments
from state.pool import Pool
from state.settings import Settings
from tests.labs import expire, idea, silence
from tests.linearizability import Seen, linearised

GPUS = tuple(f"host:gpu{n}" for n in range(6))
CLIENTS = 50
ROUNDS = 6
EXPERIMENTS_PER_ROUND = 16


@dataclass(frozen=True)
class Slot:
    """What the model knows of a GPU."""

    holder: str | None = None
    fence: int = 0
    offline: bool = False
    silent: bool = False
    """Its last heartbeat is old: not lent, and the next sweep writes `offline`."""
    expired: bool = False

    @property
    def is_idle(self) -> bool:
        return self.holder is None and not self.offline and not self.silent


@dataclass(frozen=True)
class Ended:
    """How an experiment ended, and what its reporter was told."""

    report: tuple[str, float]
    answer: tuple[Any, ...]


@dataclass(frozen=True)
class Model:
    """Pool and tag as a single process would have them; every part is hashable."""

    slots: frozenset[tuple[str, Slot]]
    ended: frozenset[tuple[str, Ended]] = frozenset()
    best: float | None = None
    crashes: int = 0

    def slot(self, gpu_id: str) -> Slot:
        return dict(self.slots)[gpu_id]

    def with_slot(self, gpu_id: str, slot: Slot) -> Model:
        return replace(self, slots=frozenset((dict(self.slots) | {gpu_id: slot}).items()))

    def held_by(self, experiment_id: str) -> tuple[str, Slot] | None:
        return next(((g, s) for g, s in self.slots if s.holder == experiment_id), None)

    def newest_fence(self) -> int:
        return max(s.fence for _, s in self.slots)


@dataclass(frozen=True)
class Op:
    """A call with what it was answered; a refusal is the answer `conflict`."""

    kind: str
    experiment_id: str = ""
    gpu_id: str = ""
    fence: int | None = None
    value: float = 0.0
    answer: Any = None


def step(model: Model, op: Op) -> Model | None:
    """The state after an operation; None where it could not have been answered so."""
    match op.kind:
        case "acquire":
            return _acquire(model, op)
        case "release":
            return _release(model, op)
        case "give_back":
            return _give_back(model, op)
        case "heartbeat":
            return _heartbeat(model, op)
        case "complete" | "crash":
            return _report(model, op)
        case "lease ended":
            return _lease_ended(model, op)
        case _:  # offline
            slot = model.slot(op.gpu_id)
            if not slot.silent or slot.offline:
                return None
            return model.with_slot(op.gpu_id, replace(slot, offline=True))


def _acquire(model: Model, op: Op) -> Model | None:
    held = model.held_by(op.experiment_id)
    if op.answer == "conflict":
        return model if op.experiment_id in dict(model.ended) else None
    if op.experiment_id in dict(model.ended):
        return None
    if op.answer is None:
        return model if held is None and not any(s.is_idle for _, s in model.slots) else None
    gpu_id, fence = op.answer
    if held is not None:
        return model if (held[0], held[1].fence) == (gpu_id, fence) else None
    slot = model.slot(gpu_id)
    if not slot.is_idle or fence != model.newest_fence() + 1:
        return None
    return model.with_slot(gpu_id, replace(slot, holder=op.experiment_id, fence=fence, expired=False))


def _release(model: Model, op: Op) -> Model | None:
    slot = model.slot(op.gpu_id)
    is_holder = slot.holder == op.experiment_id and op.fence in (None, slot.fence)
    if op.answer == "conflict":
        return model if slot.holder is not None and not is_holder else None
    if slot.holder is None:
        return model
    return model.with_slot(op.gpu_id, replace(slot, holder=None, expired=False)) if is_holder else None


def _give_back(model: Model, op: Op) -> Model | None:
    slot = model.slot(op.gpu_id)
    if not op.answer:
        # A lease that ended between its look and its move leaves nothing to give back.
        return model if slot.fence != op.fence or slot.holder is None else None
    if slot.fence != op.fence:
        return None
    return model.with_slot(op.gpu_id, replace(slot, holder=None, expired=False))


def _heartbeat(model: Model, op: Op) -> Model | None:
    slot = model.slot(op.gpu_id)
    is_running = slot.holder is not None and slot.holder not in dict(model.ended)
    right = op.fence is None or (is_running and slot.fence == op.fence)
    if op.answer != (slot.holder, slot.fence, right):
        return None
    renewed = right and op.fence is not None
    heard = replace(slot, silent=False, offline=False, expired=slot.expired and not renewed)
    return model.with_slot(op.gpu_id, heard)


def _report(model: Model, op: Op) -> Model | None:
    report = (op.kind, op.value)
    before = dict(model.ended).get(op.experiment_id)
    if before is not None:
        said = "conflict" if before.report != report else before.answer
        return model if op.answer == said else None
    if op.answer == "conflict":
        return None
    if op.kind == "crash":
        answer: tuple[Any, ...] = ("crash", model.crashes + 1)
        after = replace(model, crashes=model.crashes + 1)
    else:
        kept = model.best is None or op.value < model.best
        best = op.value if kept else model.best
        answer = ("keep" if kept else "discard", best)
        after = replace(model, crashes=0, best=best)
    ended = frozenset((dict(model.ended) | {op.experiment_id: Ended(report, answer)}).items())
    return replace(after, ended=ended) if op.answer == answer else None


def _lease_ended(model: Model, op: Op) -> Model | None:
    slot = model.slot(op.gpu_id)
    if slot.holder is None or not (slot.expired or slot.silent):
        return None
    offline = slot.offline or op.answer == "silent"
    if op.answer == "silent" and not slot.silent:
        return None
    return model.with_slot(op.gpu_id, replace(slot, holder=None, expired=False, offline=offline))


def hopeless(model: Model, op: Op) -> bool:
    """Fences only grow, a lease that ended does not come back, the best only gets better, ends are for ever."""
    match op.kind, op.answer:
        case "heartbeat", (holder, fence, _):
            slot = model.slot(op.gpu_id)
            return fence < slot.fence or (fence == slot.fence and holder is not None and slot.holder is None)
        case "acquire", answer if answer != "conflict" and op.experiment_id in dict(model.ended):
            return True
        case "acquire", (gpu_id, fence):
            slot = model.slot(gpu_id)
            again = (slot.holder, slot.fence) == (op.experiment_id, fence)
            return fence <= model.newest_fence() and not again
        case "give_back", True:
            return model.slot(op.gpu_id).fence > (op.fence or 0)
        case "lease ended", _:
            return _lease_ended(model, op) is None
        case "complete", (status, best):
            if op.experiment_id in dict(model.ended):
                return _report(model, op) is None
            return model.best is not None and (model.best < best or (status == "keep" and model.best <= best))
        case _:
            return False


def fickle(op: Op) -> bool:
    """A release is answered the same where the GPU was free before."""
    return op.kind == "release" and op.answer == "released"


class Clients:
    """Makes calls on a real lab and writes down what was asked, answered, and when."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._call = process.invoker.system("history")
        self.history: list[Seen[Op]] = []

    async def invoke(self, name: str, **request: Any) -> dict[str, Any]:
        return await self._call.invoke(name, request)

    async def do(self, op: Op) -> list[Op]:
        """Make the call; answers it with what came back (a sweep as all that it ended)."""
        called = asyncio.get_running_loop().time()
        try:
            answered = await self._made(op)
        except Conflict:
            answered = [replace(op, answer="conflict")]
        returned = asyncio.get_running_loop().time()
        self.history += [Seen(each, called, returned) for each in answered]
        return answered

    async def _made(self, op: Op) -> list[Op]:
        who = {"experiment_id": op.experiment_id}
        where: dict[str, Any] = {"gpu_id": op.gpu_id, "fence": op.fence}
        match op.kind:
            case "acquire":
                lease = await self.invoke("pool::acquire", **who)
                return [replace(op, answer=(lease["gpu_id"], lease["fence"]) if lease["acquired"] else None)]
            case "release":
                await self.invoke("pool::release", **who, **where)
                return [replace(op, answer="released")]
            case "give_back":
                given = await self.invoke("pool::give_back", **where, reason="it died")
                return [replace(op, answer=given["given_back"])]
            case "heartbeat":
                alive = await self.invoke("pool::heartbeat", **where)
                right = alive["action"] != "stop"
                return [replace(op, answer=(alive["experiment_id"], alive["fence"], right))]
            case "complete":
                verdict = await self.invoke("experiment::complete", **who, val_bpb=op.value)
                return [replace(op, answer=(verdict["status"], verdict["best_val_bpb"]))]
            case "crash":
                crashed = await self.invoke("experiment::crash", **who, error=repr(op.value))
                return [replace(op, answer=("crash", crashed["consecutive_crashes"]))]
            case _:
                swept = await self.invoke("pool::sweep")
                ended, offline = swept["leases_ended"], swept["offline"]
                why = {g: "silent" if g in offline else "expired" for g in ended}
                over = [Op("lease ended", gpu_id=g, answer=why[g]) for g in ended]
                return over + [Op("offline", gpu_id=g) for g in offline if g not in ended]


async def observed(process: Process, model: Model) -> Model:
    """The model as the lab's records show it; what they do not tell (old answers) is taken from `model`."""
    lab = process.lab
    slots = {}
    for gpu in (await Pool(lab).roster())[1]:
        before = model.slot(gpu.gpu_id)
        slots[gpu.gpu_id] = replace(before, holder=gpu.holder, fence=gpu.fence, offline=gpu.offline)
    found = await Experiments(lab).best("t")
    best = found.val_bpb if found else None
    crashes = int(await lab.command("HGET", lab.keys("crashes", "t"), "consecutive") or 0)
    return replace(model, slots=frozenset(slots.items()), best=best, crashes=crashes)


def agrees(seen: Model, model: Model) -> bool:
    """Whether the records are what the model says."""
    facts = {g: (s.holder, s.fence, s.offline) for g, s in model.slots}
    found = {g: (s.holder, s.fence, s.offline) for g, s in seen.slots}
    return facts == found and (model.best, model.crashes) == (seen.best, seen.crashes)


async def open_lab(clients: Clients) -> Model:
    """A tag and six idle GPUs."""
    await clients.invoke("experiment::setup", tag="t")
    for n, gpu_id in enumerate(GPUS):
        gpu = {"gpu_id": gpu_id, "gpu_index": n, "gpu_name": "H100", "vram_mb": 80000.0}
        await clients.invoke("pool::register_gpu", **gpu)
    return Model(frozenset((g, Slot()) for g in GPUS))


def chosen(chance: random.Random, names: list[str], leases: Mapping[str, tuple[str, int]]) -> Op:
    """What a client does next: often with a lease that it saw, or that somebody else saw."""
    name = chance.choice(names)
    held = leases.get(name) or (chance.choice(GPUS), chance.randrange(1, 50))
    kind = chance.choices(
        ("acquire", "release", "heartbeat", "complete", "crash", "give_back", "sweep"), (9, 5, 4, 3, 2, 1, 2)
    )[0]
    fence = held[1] if kind == "give_back" or chance.random() < 0.7 else None
    value = 1.0 + chance.randrange(40) / 1000  # few values, so that reports are repeated
    return Op(kind, name, held[0], fence, value)


async def time_passes(process: Process, model: Model, chance: random.Random) -> Model:
    """While nobody calls: a lease runs out, or a GPU falls silent."""
    for gpu_id in GPUS:
        slot = model.slot(gpu_id)
        fate = chance.random()
        if slot.holder is not None and fate < 0.3:
            await expire(process.lab, gpu_id)
            model = model.with_slot(gpu_id, replace(slot, expired=True))
        elif fate > 0.85:
            await silence(process.lab, gpu_id, SILENCE_S)
            model = model.with_slot(gpu_id, replace(slot, silent=True))
    return model


SILENCE_S = 100_001.0


@pytest.fixture
async def process(settings: Settings) -> AsyncIterator[Process]:
    """Of a lab in which no GPU falls silent because the machine is slow."""
    async with opened("web", settings.model_copy(update={"stale_s": SILENCE_S - 1})) as running:
        yield running


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 10))])
async def test_what_fifty_clients_saw_could_have_happened_one_after_the_other(
    process: Process, seed: int
) -> None:
    chance = random.Random(seed)
    clients = Clients(process)
    model = await open_lab(clients)
    leases: dict[str, tuple[str, int]] = {}
    names: list[str] = []
    operations = 0

    async def client(rounds: int) -> None:
        for _ in range(rounds):
            for done in await clients.do(chosen(chance, names, leases)):
                if done.kind == "acquire" and isinstance(done.answer, tuple):
                    leases[done.experiment_id] = done.answer

    for _ in range(ROUNDS):
        names = [n for n in names if n not in dict(model.ended)][:4]
        for _ in range(EXPERIMENTS_PER_ROUND - len(names)):
            names.append((await clients.invoke("experiment::register", **idea("t")))["experiment_id"])
        model = await time_passes(process, model, chance)
        clients.history = []
        await asyncio.gather(*(client(2) for _ in range(CLIENTS)))
        operations += len(clients.history)

        seen = await observed(process, model)
        ends = partial(agrees, seen)
        order = linearised(clients.history, model, step, ends, hopeless, fickle)
        assert order is not None, "\n".join(map(repr, clients.history))
        for op in order:
            after = step(model, op)
            assert after is not None
            model = after
        told = {name: ended.answer[0] for name, ended in model.ended}
        ended = await Experiments(process.lab).many(sorted(told))
        assert {e.experiment_id: e.status for e in ended} == told

    assert operations > ROUNDS * CLIENTS
    audited = await clients.invoke("lab::audit")
    assert audited["violations"] == []


IDLE = Model(frozenset((g, Slot()) for g in GPUS[:2]))
HELD = IDLE.with_slot(GPUS[0], Slot(holder="t-1", fence=1))


def acquired(name: str, gpu: int | None, fence: int = 0) -> Op:
    return Op("acquire", name, answer=None if gpu is None else (GPUS[gpu], fence))


def completed(name: str, value: float, status: str, best: float) -> Op:
    return Op("complete", name, value=value, answer=(status, best))


IMPOSSIBLE: dict[str, tuple[Model, list[Op]]] = {
    "one GPU lent twice": (IDLE, [acquired("t-1", 0, 1), acquired("t-2", 0, 2)]),
    "a fence given twice": (IDLE, [acquired("t-1", 0, 1), acquired("t-2", 1, 1)]),
    "nothing free beside an idle GPU": (HELD, [acquired("t-2", None)]),
    "a lease ended that was well": (HELD, [Op("lease ended", gpu_id=GPUS[0], answer="expired")]),
    "two bests": (
        IDLE,
        [
            completed(*told)
            for told in (("t-1", 1, "keep", 1), ("t-2", 0.9, "keep", 0.9), ("t-3", 0.95, "discard", 1))
        ],
    ),
    "a lost crash": (IDLE, [Op("crash", f"t-{n}", answer=("crash", 1)) for n in (1, 2)]),
    "a stale fence obeyed": (HELD, [Op("release", "t-1", GPUS[0], 7, answer="released")]),
}


@pytest.mark.parametrize(("start", "ops"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_history_that_could_not_have_happened_is_found(start: Model, ops: list[Op]) -> None:
    assert linearised([Seen(op, 0.0, 1.0) for op in ops], start, step) is None


def test_an_order_against_the_clock_is_found() -> None:
    first = Seen(acquired("t-1", None), 0.0, 1.0)
    later = [Seen(acquired(f"t-{n}", n - 2, n - 1), 2.0, 3.0) for n in (2, 3)]
    assert linearised([first, *later], IDLE, step) is None
    overlapping = replace(first, returned=4.0)
    assert linearised([overlapping, *later], IDLE, step) is not None
