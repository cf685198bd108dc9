"""Programs: the lab's charter, and the versions of the block in it for every tag."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from state.change import NOW, Change, hmget, loosely, size
from state.client import Lab, time_of
from state.errors import NotFound
from state.hypotheses import Hypotheses
from state.indexes import members, read_as, values
from state.noise import main_spread, spread_of
from state.policy import Guards, read_policy
from state.program_facts import (
    Base,
    DueFacts,
    FindingsFacts,
    ProgramAsk,
    ProgramGround,
    ProgramVersion,
    ServedProgram,
)
from state.records import Best, Sketch, Strategy
from state.swarms import OBSERVED
from state.tags import categories_of, tag_in

RESULTS_READ = 10

Following = Callable[[int, ProgramVersion | None, float], tuple[ProgramVersion, bool] | None]
"""A version by its number, the one before it and the time, and whether it begins a cycle (see `due.begins_cycle`);
None: none follows."""


class Programs:
    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._keys = lab.keys
        self._hypotheses = Hypotheses(lab)

    async def base(self) -> Base | None:
        """The charter; None before a process has read it."""
        return _base(await self._lab.hash(self._keys("program_base")))

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
                "now": ("TIME",),
                "tag": ("HGETALL", keys.tag(tag)),
                "strategy": ("HGETALL", keys("strategy", tag)),
                "populations": ("HVALS", keys("populations", tag)),
                "newest": ("LINDEX", keys("programs", tag), -1),
                "ask": ("HGETALL", keys("program_ask", tag)),
                "base": ("HGETALL", keys("program_base")),
            }
        )
        return DueFacts(
            now=time_of(found["now"]),
            tag=tag_in(found["tag"], tag),
            strategy=Strategy.parse(found["strategy"]),
            populations=found["populations"],
            current=_version(found["newest"]),
            ask=_ask(found["ask"]),
            base=_base(found["base"]),
        )

    async def findings_facts(self, tag: str) -> FindingsFacts:
        """All that the findings of a tag follow from. Raises NotFound: no such tag."""
        found = await asyncio.gather(self.due_facts(tag), self._hypotheses.all(tag), self.ground(tag))
        return FindingsFacts(*found)

    async def ground(self, tag: str) -> ProgramGround:
        """Results of a tag's experiments for its program; one round trip."""
        keys = self._keys
        newest = members(self._lab, keys("finished", tag), limit=RESULTS_READ, newest=True, fields=Sketch)
        runs = members(
            self._lab,
            keys("finished", tag),
            limit=OBSERVED,
            newest=True,
            fields=("config_delta", "delta_bpb"),
        )
        noise = main_spread(self._lab, tag)
        best, categories, results, configs, spread = await self._lab.pipeline(
            [("HGETALL", keys.best(tag)), ("HGETALL", keys("categories", tag)), newest, runs, noise]
        )
        return ProgramGround(
            best=Best.found(best),
            noise=spread_of(spread),
            results=read_as(Sketch, results)[::-1],
            categories=categories_of(categories),
            configs=[(config, delta) for config, delta in values(configs).values() if config and delta],
        )

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
            count, newest, time = await change.read(
                size(programs), loosely("LINDEX", programs, "-1"), loosely("TIME")
            )
            found = following(count + 1, _version(newest), time_of(time))
            if found is None:
                return None
            version, begins_cycle = found
            change.rpush(programs, version.text())
            change.delete(self._keys("program_ask", tag))
            change.zrem(self._keys("program_asks"), tag)
            written = {
                "number": version.number,
                "author": version.author,
                "reason": version.reason,
                "results": version.results,
                "digest": digest_of(version.block),
                "cycle": begins_cycle,
            }
            change.emit("program.written", tag, tag, written)
            return version.number

        return await self._lab.change(decide)

    async def served(self, tag: str) -> ServedProgram:
        """Parts of a tag's program; one round trip. An unknown tag has none."""
        keys = self._keys
        base, newest, is_swarm, policy, direction = await self._lab.pipeline(
            [
                ("HGETALL", keys("program_base")),
                ("LINDEX", keys("programs", tag), -1),
                ("EXISTS", keys("dimensions", tag)),
                ("HGET", keys("policy", tag), "values"),
                ("HGET", keys.tag(tag), "direction"),
            ]
        )
        return ServedProgram(
            base=_base(base),
            current=_version(newest),
            is_swarm=bool(is_swarm),
            guards=read_policy(policy).guards if policy else Guards(),
            direction=direction or "minimize",
        )

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


def _base(stored: dict[str, Any]) -> Base | None:
    return Base(stored["text"], stored["digest"], stored.get("workers")) if stored else None


def _version(text: str | None) -> ProgramVersion | None:
    return None if text is None else ProgramVersion.read(text)


def _ask(stored: dict[str, str]) -> ProgramAsk | None:
    if not stored:
        return None
    return ProgramAsk(int(stored["number"]), int(stored["attempt"]), float(stored["at"]), stored["reason"])
