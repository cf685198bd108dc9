"""What passes between the lab and its workers: orders, the code of a run, and texts of a language model.

A handler that asks for an `Author` runs only in a process that provides one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel

Order = Literal["continue", "stop", "lost"]
"""The lab's order for a running attempt. lost: its lease is gone, drop it."""


@dataclass(frozen=True)
class Extension:
    """The run goes on with more time, because it is one of the best."""

    extra_s: float
    """Seconds beyond its first time limit; the same when the order is repeated."""
    budget_s: float
    """Seconds that it may train in total."""


@dataclass(frozen=True)
class Source:
    """The code that an attempt trains."""

    tree_id: str
    """Id of the files with their constants set, whatever the seed."""
    patch: bytes | None
    """Patch against the tag's base commit, if none was sent or the sent one makes other files."""
    differs: bool
    """The patch that was sent makes other files than the commit."""


@dataclass(frozen=True)
class Commission:
    """A request to an author."""

    task: str
    """In a few sentences."""
    context: str
    """Computed findings as Markdown; texts of people and scripts are delimited as data."""


Draft = TypeVar("Draft", bound=BaseModel)
"""A form of `functions/formats/authored.py`, filled in."""


@runtime_checkable
class Author(Protocol):
    """A worker's access to a language model."""

    @property
    def name(self) -> str:
        """The provider and the model, for people."""
        ...

    async def write(self, kind: type[Draft], commission: Commission) -> Draft | None:
        """Fill in a form, within NIGHTJAR_LLM_TIMEOUT_S, repair of the reply included.

        None: the reply was unusable, or the day's budget is used up; log and counters say why. Faults of the provider
        raise nothing.
        """
        ...
