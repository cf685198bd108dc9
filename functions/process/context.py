"""Facts for every log line of a task."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

_bound: ContextVar[Mapping[str, object]] = ContextVar("bound", default=MappingProxyType({}))


class bound:
    """Add these facts to the lines that are logged within; the block may add more to the dict that it gets."""

    def __init__(self, **facts: object) -> None:
        self._facts = facts

    def __enter__(self) -> dict[str, object]:
        facts = {**_bound.get(), **self._facts}
        self._before = _bound.set(facts)
        return facts

    def __exit__(self, *_: object) -> None:
        _bound.reset(self._before)


def bound_facts() -> Mapping[str, object]:
    """The facts bound here."""
    return _bound.get()
