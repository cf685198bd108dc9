"""Facts that stand on every line that is logged while something is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_bound: ContextVar[Mapping[str, object]] = ContextVar("bound", default=MappingProxyType({}))


@contextmanager
def bound(**facts: object) -> Iterator[None]:
    """Add these facts to the lines that are logged within."""
    before = _bound.set({**_bound.get(), **facts})
    try:
        yield
    finally:
        _bound.reset(before)


def bound_facts() -> Mapping[str, object]:
    """What is bound here."""
    return _bound.get()
