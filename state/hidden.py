"""Numbers of hidden splits: one hash for each tag and class of GPU, and one for each tag's `test` split.

Only functions/trust reads what is in them. No record, event, answer or backup holds one of these numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from state.change import Change, hmget
from state.facts import BASELINE, HiddenFacts
from state.noise import class_id
from state.store import Store

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

    def _key(self, tag: str, gpu_class: str | None) -> str:
        return self._keys("hidden", tag, class_id(gpu_class))
