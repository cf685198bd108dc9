"""Certificates: one for each candidate, kept by its tag."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from state.change import Change, Read, clock, hgetall, hmget, size
from state.errors import Conflict, NotFound
from state.ids import named_by
from state.reads import Store, experiment_in
from state.records import Certificate, Experiment

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
