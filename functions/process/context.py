"""Facts that stand on every line that is logged while something is done."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

_bound: ContextVar[Mapping[str, object]] = ContextVar("bound", default=MappingProxyType({}))


class bound:
    """Add these facts to the lines that are logged within."""

    def __init__(self, **facts: object) -> None:
        self._facts = facts

    def __enter__(self) -> None:
        self._before = _bound.set({**_bound.get(), **self._facts})

    def __exit__(self, *_: object) -> None:
        _bound.reset(self._before)


def bound_facts() -> Mapping[str, object]:
    """What is bound here."""
    return _bound.get()
