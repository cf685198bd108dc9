"""Without Redis no budget can be reserved, so nothing is sent; what has come already is not lost."""

from __future__ import annotations

import pytest

from functions.formats.authored import GraphSummary
from functions.kernel.process.lifecycle import Process
from state.author_budget import AuthorBudget
from state.errors import Unavailable
from tests.workers.author.conftest import COMMISSION, SUMMARY, playing
from tests.workers.author.provider import AnthropicDialect

DIALECT = AnthropicDialect()
FILLED = DIALECT.filled("GraphSummary", SUMMARY)


async def away(*_: object) -> None:
    raise Unavailable("Redis does not answer")


async def test_nothing_is_sent_that_cannot_be_reserved(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with playing(process, monkeypatch, DIALECT, FILLED) as scene:
        monkeypatch.setattr(AuthorBudget, "reserve", away)

        with pytest.raises(Unavailable):
            await scene.author.write(GraphSummary, COMMISSION)

        assert scene.stage.received == []


async def test_a_text_that_has_come_is_given_back_though_its_cost_cannot_be_noted(
    process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with playing(process, monkeypatch, DIALECT, FILLED) as scene:
        with monkeypatch.context() as patched:
            patched.setattr(AuthorBudget, "close", away)

            written = await scene.author.write(GraphSummary, COMMISSION)

        assert written == GraphSummary(summary=SUMMARY["summary"])
        assert (await scene.spent()).tokens > 10_000
    assert "the budget keeps what was reserved" in caplog.text
