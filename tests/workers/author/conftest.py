"""Fixtures of the author tests: a scripted provider, and an author with the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from pydantic import SecretStr

from functions.kernel.lanes import Author, Commission
from functions.kernel.process.lifecycle import Process
from functions.kernel.process.meters import Meters
from functions.pi.rules.authoring import RequestBackoff
from state.author_budget import AuthorBudget, Cost
from tests.workers.author.provider import DIALECTS, KEY, Act, Dialect, Stage
from workers.author.choosing import author_for

LONG_S = 100.0
"""Enough for any machine."""
COMMISSION = Commission(task="Summarise the graph.", context="| id | loss |\n|---|---|\n| t-1 | 0.9 |")
SUMMARY = {"summary": "Two branches; the second one leads."}


@dataclass(frozen=True)
class Scene:
    """An author, what its provider was asked, and what was counted."""

    author: Author
    stage: Stage
    meters: Meters
    budget: AuthorBudget

    def sample(self, name: str, **labels: str) -> float:
        """One of the counts, as /metrics shows it; 0 where there is none."""
        samples = [s for family in self.meters.families({}) for s in family.samples]
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    def outcomes(self) -> dict[str, float]:
        """How often each outcome was counted."""
        samples = [s for family in self.meters.families({}) for s in family.samples]
        return {s.labels["outcome"]: s.value for s in samples if s.name == "nightjar_author_calls_total"}

    async def spent(self) -> Cost:
        return await self.budget.today()


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found = request.param
    assert isinstance(found, Dialect)
    return found


@asynccontextmanager
async def playing(
    process: Process, patch: pytest.MonkeyPatch, dialect: Dialect, *acts: Act, **settings: Any
) -> AsyncIterator[Scene]:
    """An author of this lab, while its provider plays the acts."""
    key = {f"{dialect.name}_api_key": SecretStr(KEY)}
    given = process.settings.model_copy(
        update={"llm_provider": dialect.name, "llm_timeout_s": LONG_S, **key, **settings}
    )
    meters = Meters("pi")
    async with Stage(*acts).open() as stage:
        patch.setenv(dialect.base_url, dialect.at(stage.url))
        async with author_for(given, process.lab, meters, RequestBackoff(0.001, 0.01)) as author:
            assert author is not None
            yield Scene(author, stage, meters, AuthorBudget(process.lab))


Play = Callable[..., AbstractAsyncContextManager[Scene]]


@pytest.fixture
def play(process: Process, monkeypatch: pytest.MonkeyPatch, dialect: Dialect) -> Play:
    """`playing` with this lab and dialect."""
    return partial(playing, process, monkeypatch, dialect)
