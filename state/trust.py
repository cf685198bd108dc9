"""Certificates, transfers, distillations, and the numbers of hidden splits.

A certificate is kept by its tag, one for each candidate. Transfers and distillations are records of runs that are in
a tag of their own, one for each such tag. Hidden splits have one hash for each tag and class of GPU, and one for each
tag's `test` split: only functions/trust reads what is in them. No record, event, answer or backup holds one of them.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from state.change import Change, Read, clock, hgetall, hmget, size
from state.errors import Conflict, NotFound
from state.facts import BASELINE, HiddenFacts
from state.ids import named_by
from state.noise import class_id
from state.reads import Store, experiment_in
from state.records import Certificate, Distillation, Experiment, Transfer

MOST = 500
"""Certificates of a tag: reports read all of them."""
Next = Callable[[Certificate, Experiment, Experiment, Mapping[str, Experiment], float], Certificate]
"""The certificate after what happened: it, its candidate, its reference, runs of its newest pair by id, the time."""
Begun = Callable[[Certificate | None, Experiment, Experiment, float], Certificate]


class Certificates(Store):
    """All certificates of the lab."""

    async def all(self, tag: str) -> list[Certificate]:
        """Those of a tag, oldest first."""
        texts = await self._lab.command("HVALS", self._keys("certificates", tag))
        found = [Certificate.model_validate_json(text) for text in texts]
        return sorted(found, key=lambda one: one.begun_at)

    async def begin(self, experiment_id: str, against: str, begun: Begun) -> Certificate:
        """Store a new certificate, or answer the one that `begun` answers unchanged.

        Raises:
            NotFound: no such experiment. Conflict: the tag has MOST certificates. What `begun` raises.
        """

        async def decide(change: Change) -> Certificate:
            before, candidate, reference, now, count = await self._read(
                change, experiment_id, against, size(self._key(experiment_id))
            )
            after = begun(before, candidate, reference, now)
            if after == before:
                return change.idle(after)
            if before is None and count >= MOST:
                raise Conflict(
                    f"{candidate.tag!r} has {MOST} certificates, the most that a tag may have",
                    hint="certify what may be published, in a tag of its own",
                )
            self._write(change, after)
            data = after.model_dump(include={"experiment_id", "against", "min_gain", "alpha", "nth"})
            change.emit("certificate.begun", candidate.tag, experiment_id, data)
            return after

        return await self.change(decide)

    async def has_run(self, change: Change, e: Experiment) -> bool:
        """Whether this retest is a run of a certificate's pair."""
        (found,) = await change.read(hgetall(self._key(e.experiment_id)))
        known = map(Certificate.model_validate_json, found.values())
        return any(e.experiment_id in pair.in_order for one in known for pair in one.pairs)

    async def go_on(self, experiment_id: str, against: str, following: Next) -> Certificate:
        """Take the step that the newest pair's runs allow. Its verdict writes an event.

        Raises:
            NotFound: there is no such certificate.
        """

        async def decide(change: Change) -> Certificate:
            before, candidate, reference, now = await self._read(change, experiment_id, against)
            if before is None or before.against != against:
                raise NotFound(f"{experiment_id} has no certificate against {against}")
            runs: dict[str, Experiment] = {}
            if before.pairs and before.pairs[-1].is_open:
                names = before.pairs[-1].in_order
                rows = await change.read(*(hgetall(self._keys.experiment(name), "status") for name in names))
                runs = {name: Experiment.parse(row) for name, row in zip(names, rows, strict=True) if row}
            after = following(before, candidate, reference, runs, now)
            if after == before:
                return change.idle(after)
            self._write(change, after)
            if after.state != before.state:
                told = {"experiment_id", "against", "state", "reason", "e_value", "alpha", "min_gain"}
                data = after.model_dump(include=told) | {"pairs": len(after.counted)}
                change.emit("certificate.decided", candidate.tag, experiment_id, data)
            return after

        return await self.change(decide)

    async def _read(
        self, change: Change, experiment_id: str, against: str, *more: Read[Any]
    ) -> tuple[Any, ...]:
        """The certificate of a candidate, both experiments as far as a pair rests on them, the time, and more."""
        rests_on = ("status", "retests", "val_bpb", "gpu_class")
        found, candidate, reference, now, *others = await change.read(
            hmget(self._key(experiment_id), experiment_id),
            hgetall(self._keys.experiment(experiment_id), *rests_on),
            hgetall(self._keys.experiment(against), *rests_on),
            clock(),
            *more,
        )
        text = found[experiment_id]
        return (
            None if text is None else Certificate.model_validate_json(text),
            experiment_in(candidate, experiment_id),
            experiment_in(reference, against),
            now,
            *others,
        )

    def _write(self, change: Change, one: Certificate) -> None:
        change.hset(self._key(one.experiment_id), {one.experiment_id: one.model_dump_json()})

    def _key(self, experiment_id: str) -> str:
        return self._keys("certificates", named_by(experiment_id)[1])


T = TypeVar("T", Distillation, Transfer)


class Apart(Store, Generic[T]):
    """All records of one kind in the lab."""

    record: ClassVar[Any]
    family: ClassVar[str]

    @abstractmethod
    def _tell(self, change: Change, one: T, *, is_new: bool) -> None:
        """Write the event of its begin or of its new state."""

    async def all(self, tag: str | None = None) -> list[T]:
        """Those of a tag, or of all, oldest first."""
        texts = await self._lab.command("HVALS", self._keys(self.family))
        found: list[T] = [self.record.model_validate_json(text) for text in texts]
        return sorted((one for one in found if tag in (None, one.tag)), key=lambda one: one.begun_at)

    async def get(self, into: str) -> T:
        """The one whose runs are in a tag. Raises NotFound: there is none."""
        text = await self._lab.command("HGET", self._keys(self.family), into)
        if text is None:
            raise NotFound(f"{into!r} is not in the lab's {self.family}")
        found: T = self.record.model_validate_json(text)
        return found

    async def put(self, before: T | None, after: T) -> bool:
        """Store the next state; False: another process has stored one meanwhile. Begin and end write events."""
        key, found_before = self._keys(self.family), before and before.model_dump_json()

        async def decide(change: Change) -> bool:
            found, now = await change.read(hmget(key, after.into), clock())
            if found[after.into] != found_before:
                return change.idle(False)
            stored = after
            if before is None:
                stored = after.model_copy(update={"begun_at": now})
            elif after.state != "running":
                stored = after.model_copy(update={"decided_at": now})
            change.hset(key, {after.into: stored.model_dump_json()})
            if before is None or after.state != before.state:
                self._tell(change, stored, is_new=before is None)
            return True

        return await self.change(decide)


class Transfers(Apart[Transfer]):
    """Transfers of keeps to a longer budget."""

    record, family = Transfer, "transfers"

    def _tell(self, change: Change, one: Transfer, *, is_new: bool) -> None:
        data = one.model_dump(
            include={"into", "against", "budget_s", "state", "reason", "gain", "longer_gain", "pairs"}
        )
        if is_new:
            change.emit("transfer.begun", one.tag, one.experiment_id, data)
        else:
            change.emit("transfer.decided", one.tag, one.experiment_id, data)


class Distillations(Apart[Distillation]):
    """Distillations of chains of keeps."""

    record, family = Distillation, "distillations"

    def _tell(self, change: Change, one: Distillation, *, is_new: bool) -> None:
        told = one.model_dump(include={"into", "best", "state", "reason", "smallest", "most_runs", "loss"})
        kept = sum(change.stays for change in one.changes)
        data = told | {"changes": len(one.changes), "kept": kept, "runs": one.runs}
        if is_new:
            change.emit("distil.begun", one.tag, one.into, data)
        else:
            change.emit("distil.decided", one.tag, one.into, data)


FOR_ALL = ("squares", "df", BASELINE)


class HiddenNumbers(Store):
    """Numbers of hidden splits of the lab."""

    async def of(
        self, change: Change, tag: str, gpu_class: str | None, codes: Collection[str]
    ) -> HiddenFacts:
        """The numbers of these codes, with the noise of all; guarded."""
        (stored,) = await change.read(hmget(self._key(tag, gpu_class), *FOR_ALL, *dict.fromkeys(codes)))
        return HiddenFacts(stored)

    async def seen(self, tag: str, gpu_class: str | None, codes: Collection[str]) -> HiddenFacts:
        """The same, for a decision that another guard covers."""
        names = (*FOR_ALL, *dict.fromkeys(codes))
        found = await self._lab.command("HMGET", self._key(tag, gpu_class), *names)
        return HiddenFacts(dict(zip(names, found, strict=True)))

    def keep(self, change: Change, tag: str, gpu_class: str | None, fields: Mapping[str, str]) -> None:
        """Write fields; an empty text takes a field out."""
        key = self._key(tag, gpu_class)
        change.hset(key, {name: text for name, text in fields.items() if text})
        change.hdel(key, *(name for name, text in fields.items() if not text))

    async def take_test(self, e: Experiment, run: str) -> bool:
        """Whether the evaluator of this run reads the test split. It does in the first run that asks."""
        key, name = self._keys("hidden", e.tag), f"test:{e.experiment_id}"

        async def decide(change: Change) -> bool:
            (found,) = await change.read(hmget(key, name))
            if found[name] is not None:
                return change.idle(is_of(found[name], run))
            change.hset(key, {name: json.dumps({"run": run})})
            change.hincrby(key, "test_reads")
            return True

        return await self.change(decide)

    async def reads_test(self, e: Experiment) -> bool:
        """Whether the evaluator of this run reads the test split."""
        found = await self._lab.command("HGET", self._keys("hidden", e.tag), f"test:{e.retest_of}")
        return is_of(found, e.experiment_id)

    async def awaits_test(self, change: Change, e: Experiment) -> bool:
        """The same, guarded."""
        name = f"test:{e.retest_of}"
        (found,) = await change.read(hmget(self._keys("hidden", e.tag), name))
        return is_of(found[name], e.experiment_id)

    def keep_test(self, change: Change, e: Experiment, value: float) -> None:
        """Write what such a run measured there."""
        kept = json.dumps({"run": e.experiment_id, "value": value}, allow_nan=False)
        change.hset(self._keys("hidden", e.tag), {f"test:{e.retest_of}": kept})

    async def tests(self, tag: str) -> HiddenFacts:
        """The numbers of a tag's test split, and how often it was read."""
        return HiddenFacts(await self._lab.hash(self._keys("hidden", tag)))

    def _key(self, tag: str, gpu_class: str | None) -> str:
        return self._keys("hidden", tag, class_id(gpu_class))


def is_of(kept: str | None, run: str) -> bool:
    """Whether a stored number of a test split is of this run."""
    return kept is not None and json.loads(kept)["run"] == run
