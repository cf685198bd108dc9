"""Programs: the charter and its file, the versions of the block in it for every tag, and the pipeline of drafts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from state import reads
from state.belief_facts import BeliefFacts, StoredEvidence
from state.change import NOW, Asked, Change, Read, clock, exists, hmget, loosely, size
from state.client import Lab
from state.errors import Invalid, NotFound
from state.hypotheses import EVIDENCE, Hypotheses, evidence_reads, read_beliefs
from state.keys import Keys
from state.program_facts import (
    Base,
    DueFacts,
    EarlyFacts,
    FindingsFacts,
    OutlierRun,
    PipelineFacts,
    PipelineState,
    PipelineStep,
    ProgramAsk,
    ProgramGround,
    ProgramVersion,
    ServedProgram,
)
from state.reads import Store, fields_in
from state.records import ConfirmedDraft, Experiment, Pipeline, Sketch
from state.settings import Settings
from state.swarms import OBSERVED

RESULTS_READ = 10

Following = Callable[[int, ProgramVersion | None, float], tuple[ProgramVersion, bool] | None]
"""A version by its number, the one before it and the time, and whether it begins a cycle (see `due.begins_cycle`);
None: none follows."""


class Programs(Store):
    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self._hypotheses = Hypotheses(lab)

    async def base(self) -> Base | None:
        """The charter; None before a process has read it."""
        return await self._lab.one(_base(self._keys))

    async def set_base(self, text: str, host: str, workers: str | None = None) -> bool:
        """Keep the charter of a host's file; False where it is the one that is kept, or the file has not changed."""
        digest, of_host = base_of(text, workers).digest, f"of:{host}"
        base, bases = self._keys("program_base"), self._keys("program_bases")

        async def decide(change: Change) -> bool:
            (kept,) = await change.read(hmget(base, of_host, "digest"))
            if kept[of_host] == digest:  # hosts with different files do not take turns
                return False
            change.hset(base, {of_host: digest})
            if kept["digest"] == digest:
                return False
            change.hset(base, {"text": text, "digest": digest})
            change.hset(bases, {digest: text})
            if workers is None:
                change.hdel(base, "workers")
            else:
                change.hset(base, {"workers": workers})
                change.hset(bases, {f"{digest}:workers": workers})
            change.emit("program.rebased", None, digest, {"digest": digest, "bytes": len(text.encode())})
            return True

        return await self._lab.change(decide)

    async def due_facts(self, tag: str) -> DueFacts:
        """Facts to decide whether a tag needs another version. Raises NotFound: no such tag."""
        keys = self._keys
        found = await self._lab.read(
            {
                "now": clock(),
                "tag": reads.tag(keys, tag),
                "strategy": reads.strategy(keys, tag),
                "populations": ("HVALS", keys("populations", tag)),
                "current": _newest(keys, tag),
                "ask": loosely("HGETALL", keys("program_ask", tag), to=_ask),
                "base": _base(keys),
                "is_swarm": exists(keys("dimensions", tag)),
            }
        )
        return DueFacts(**found)

    async def findings_facts(self, tag: str, *, is_swarm: bool = True) -> FindingsFacts:
        """All that the findings of a tag follow from, configs only of a swarm. Raises NotFound: no such tag."""
        ground = self._ground(tag, is_swarm=is_swarm)
        found = await asyncio.gather(self.due_facts(tag), self._hypotheses.all(tag), ground)
        return FindingsFacts(*found)

    async def _ground(self, tag: str, *, is_swarm: bool) -> ProgramGround:
        """Results of a tag's experiments for its program, configs only of a swarm; one round trip."""
        keys = self._keys
        finished, fields = keys("finished", tag), ("config_delta", "delta_bpb")
        configs = reads.members(self._lab, finished, limit=OBSERVED, newest=True, fields=fields)
        found = await self._lab.read(
            {
                "best": reads.best(keys, tag),
                "categories": reads.categories(keys, tag),
                "results": reads.rows(self._lab, Sketch, finished, limit=RESULTS_READ, newest=True),
                "configs": configs.to(lambda of_run: [tuple(row) for row in of_run.values() if all(row)])
                if is_swarm
                else None,
                "noise": reads.main_noise(self._lab, tag),
            }
        )
        lists = {"results": found["results"][::-1], "configs": found["configs"] or ()}
        return ProgramGround(**found | lists)

    async def ask(self, tag: str, ask: ProgramAsk) -> bool:
        """Note that a language model is asked; False where it was, or another version was written since."""
        key = self._keys("program_ask", tag)
        asked: dict[str, int | str] = {"number": ask.number, "attempt": ask.attempt, "reason": ask.reason}

        async def decide(change: Change) -> bool:
            count, before = await change.read(
                size(self._keys("programs", tag)), hmget(key, "number", "attempt")
            )
            attempts = int(before["attempt"] or 0) if before["number"] == str(ask.number) else 0
            if (count, attempts) != (ask.number - 1, ask.attempt - 1):
                return False
            change.hset(key, {**asked, "at": NOW})
            change.zadd(self._keys("program_asks"), {tag: NOW})
            change.emit("program.asked", tag, tag, asked)
            return True

        return await self._lab.change(decide)

    async def asked(self) -> list[str]:
        """Tags whose next version a language model was asked for, the longest waiting first."""
        found: list[str] = await self._lab.command("ZRANGE", self._keys("program_asks"), 0, -1)
        return found

    async def write(self, tag: str, version: ProgramVersion) -> bool:
        """Append a version; False where there is one of its number."""
        written = await self.append(
            tag, lambda number, *_: (version, True) if number == version.number else None
        )
        return written is not None

    async def append(self, tag: str, following: Following) -> int | None:
        """Append the version that follows on the newest one; answers its number, or None where none does."""
        programs = self._keys("programs", tag)

        async def decide(change: Change) -> int | None:
            count, newest, now = await change.read(size(programs), _newest(self._keys, tag), clock())
            found = following(count + 1, newest, now)
            if found is None:
                return None
            version, begins_cycle = found
            change.rpush(programs, version.text())
            change.delete(self._keys("program_ask", tag))
            change.zrem(self._keys("program_asks"), tag)
            written = {name: getattr(version, name) for name in ("number", "author", "reason", "results")}
            written |= {"digest": digest_of(version.block), "cycle": begins_cycle}
            change.emit("program.written", tag, tag, written)
            return version.number

        return await self._lab.change(decide)

    async def served(self, tag: str) -> ServedProgram:
        """Parts of a tag's program; one round trip. An unknown tag has none."""
        keys = self._keys
        base, newest, is_swarm, policy, direction = await self._lab.read(
            _base(keys),
            _newest(keys, tag),
            exists(keys("dimensions", tag)),
            reads.policy(keys, tag),
            loosely("HGET", keys.tag(tag), "direction"),
        )
        return ServedProgram(base, newest, is_swarm, policy.guards, direction or "minimize")

    async def versions(self, tag: str, offset: int, limit: int) -> tuple[list[ProgramVersion], int]:
        """A page of versions, the newest first, and the number of all; one round trip."""
        key = self._keys("programs", tag)
        texts, count = await self._lab.pipeline(
            [("LRANGE", key, -offset - limit, -offset - 1), ("LLEN", key)]
        )
        return [ProgramVersion.read(text) for text in texts[::-1]], int(count)

    async def count(self, tag: str) -> int:
        return int(await self._lab.command("LLEN", self._keys("programs", tag)))

    async def with_bases(self, tag: str, numbers: Sequence[int]) -> dict[int, ServedProgram]:
        """Versions by number, each with its charter. Raises NotFound: there is none of this number."""
        if not numbers:
            return {}
        key, found = self._keys("programs", tag), dict[int, ProgramVersion]()
        *texts, is_swarm = await self._lab.pipeline(
            [*(("LINDEX", key, number - 1) for number in numbers), ("EXISTS", self._keys("dimensions", tag))]
        )
        for number, text in zip(numbers, texts, strict=True):
            if text is None:
                raise NotFound(
                    f"the program of {tag!r} has no version {number}",
                    hint=f"./nightjar program --tag {tag} --versions names them",
                )
            found[number] = ProgramVersion.read(text)
        digests = [version.base_digest for version in found.values()]
        names = [name for digest in digests for name in (digest, f"{digest}:workers")]
        bases = await self._lab.command("HMGET", self._keys("program_bases"), *names)
        return {
            number: ServedProgram(Base(text or "", version.base_digest, workers), version, bool(is_swarm))
            for (number, version), text, workers in zip(found.items(), bases[::2], bases[1::2], strict=True)
        }


def digest_of(text: str) -> str:
    """First 16 hexadecimal digits of a text's SHA-256."""
    return sha256(text.encode()).hexdigest()[:16]


def base_of(text: str, workers: str | None) -> Base:
    return Base(text, digest_of(text + (workers or "")), workers)


def _base(keys: Keys) -> Read[Base | None]:
    """The charter; None before a process has read it."""
    return loosely(
        "HGETALL",
        keys("program_base"),
        to=lambda stored: Base(stored["text"], stored["digest"], stored.get("workers")) if stored else None,
    )


def _newest(keys: Keys, tag: str) -> Read[ProgramVersion | None]:
    """The newest version of a tag's program."""
    return loosely("LINDEX", keys("programs", tag), -1, to=lambda text: text and ProgramVersion.read(text))


def _ask(stored: dict[str, str]) -> ProgramAsk | None:
    if not stored:
        return None
    return ProgramAsk(int(stored["number"]), int(stored["attempt"]), float(stored["at"]), stored["reason"])


FOLDER = Path(__file__).parents[1]
"""Folder of Nightjar's own charters, in a checkout and in the wheel."""
OURS, OF_WORKERS = FOLDER / "program.md", FOLDER / "program-worker.md"
MOST_BYTES = 256 * 1024


def charter_file(settings: Settings) -> Path:
    return settings.program or OURS


def read_charters(settings: Settings) -> tuple[str, str | None]:
    """The charter, and Nightjar's own text for workers. Blocks. Raises Invalid: as `read_charter`."""
    text = read_charter(charter_file(settings))
    return text, read_charter(OF_WORKERS) if settings.program is None else None


def read_charter(path: Path) -> str:
    """The unchanged text of a charter. Blocks. Raises Invalid: unreadable, too long, or no UTF-8."""
    hint = "name another file with NIGHTJAR_PROGRAM, or mend this one"
    try:
        with path.open("rb") as file:
            found = file.read(MOST_BYTES + 1)
    except OSError as problem:
        raise Invalid(f"{str(path)!r} cannot be read: {problem.strerror}", hint=hint) from problem
    if len(found) > MOST_BYTES:
        raise Invalid(f"{str(path)!r} has more than {MOST_BYTES} bytes", hint=hint)
    try:
        return found.decode()
    except UnicodeDecodeError as problem:
        raise Invalid(f"{str(path)!r} is no UTF-8 at byte {problem.start}", hint=hint) from problem


NEWEST: Final = 20
"""Number of newest results that are searched for outliers."""
RUNNING: Final = 100
"""Runs whose ends are predicted, at most."""
FINISHED: Final = 100
"""Newest finished runs that these are compared with."""

Choose = Callable[[PipelineState], Awaitable[PipelineStep | None]]
"""Chooses the next step of a pipeline; None: none is due."""


class Pipelines(Store):
    async def read(self, tag: str) -> tuple[Pipeline, str | None]:
        """State of a tag's pipeline with the text of its draft; one round trip.

        An unknown tag, or one without a pipeline, has one that has not begun.
        """
        stored = await self._lab.hash(self._keys("pipeline", tag))
        return Pipeline.parse(stored), stored.get("text")

    async def confirmed(self, tag: str) -> tuple[ConfirmedDraft, str] | None:
        """The last confirmed draft with its text; None: none was confirmed. One round trip."""
        key, read = self._keys("pipeline", tag), ("confirmed", "confirmed_text")
        stored, text = await self._lab.command("HMGET", key, *read)
        return None if stored is None or text is None else (ConfirmedDraft.model_validate_json(stored), text)

    async def stand(self, tag: str) -> PipelineState:
        """State of a pipeline; one round trip of a few fields."""
        return PipelineState(**await self._lab.read(self._of_pipeline(tag)))

    async def facts(self, tag: str) -> PipelineFacts:
        """Facts for its next step; one round trip. Raises NotFound: no such tag."""
        finished, of_pipeline = self._keys("finished", tag), self._of_pipeline(tag)
        ended = reads.rows(self._lab, OutlierRun, finished, limit=NEWEST, newest=True)
        found = await read_beliefs(self._lab, self._lab, tag, {**of_pipeline, "ended": ended})
        newest = found.pop("ended")
        own = {name: found.pop(name) for name in ("pipeline", "ticks", "has_program")}
        beliefs = BeliefFacts(**found)
        return PipelineFacts(PipelineState(now=beliefs.now, results=beliefs.results, **own), beliefs, newest)

    async def early(self, tag: str) -> EarlyFacts:
        """Facts to predict the end of the running batch; one round trip. Raises NotFound: no such tag."""
        keys, lab = self._keys, self._lab
        running, finished = keys.status(tag, "running", "")[0], keys("finished", tag)
        more: dict[str, Asked] = {
            **evidence_reads(lab, tag),
            **{family: ("HGETALL", keys(family, tag)) for family in EVIDENCE},
            "running": reads.records(lab, Experiment, running, limit=RUNNING),
            "ended": reads.records(lab, Experiment, finished, limit=FINISHED, newest=True),
        }
        found = await read_beliefs(lab, lab, tag, more)
        texts = [found.pop(family) for family in EVIDENCE]
        kept = {
            h.hypothesis_id: StoredEvidence(*(of_each.get(h.hypothesis_id) for of_each in texts))
            for h in found["open"]
        }
        return EarlyFacts(**found, kept=kept)

    async def take(self, tag: str, choose: Choose) -> PipelineStep | None:
        """Take the step that is chosen for the pipeline as it is; answers it.

        The text of a draft goes with it. The text that was confirmed last stays until another one is confirmed: it
        may not be adopted yet.
        """
        key = self._keys("pipeline", tag)

        async def decide(change: Change) -> PipelineStep | None:
            step = await choose(PipelineState(**await change.read(self._of_pipeline(tag))))
            if step is None:
                return None
            fields = step.after.flat() | ({} if step.text is None else {"text": step.text})
            if step.kind == "confirmed":
                (kept,) = await change.read(hmget(key, "text"))
                fields |= {name: kept["text"] for name in ("text", "confirmed_text") if kept["text"]}
            change.hset(key, fields)
            if gone := {*fields_in(Pipeline), "text"} - fields.keys():
                change.hdel(key, *sorted(gone))
            if step.data:
                change.emit(f"pipeline.{step.kind}", tag, step.data["spec_id"], step.data)
            return step

        return await self._lab.change(decide)

    def _of_pipeline(self, tag: str) -> dict[str, Asked]:
        """The reads of `PipelineState`."""
        keys = self._keys
        return {
            "now": clock(),
            "pipeline": hmget(keys("pipeline", tag), *fields_in(Pipeline)).to(Pipeline.parse),
            "results": reads.number("HGET", keys("beliefs", tag), "results"),
            "ticks": reads.number("HGET", keys.tag(tag), "ticks"),
            "has_program": reads.number("LLEN", keys("programs", tag)).to(bool),
        }
