"""Numbers of hidden splits: one hash for each tag and class of GPU, and one for each tag's `test` split.

Only functions/trust reads what is in them. No record, event, answer or backup holds one of these numbers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from state.change import Change, hmget
from state.facts import BASELINE, HiddenFacts
from state.noise import class_id
from state.reads import Store
from state.records import Experiment

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
