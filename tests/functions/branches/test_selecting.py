"""Turns of agents that select at once, with and without naming a trace."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from state.selecting import SelectionDecision
from state.traces import Traces
from tests.labs import open_tag, told

AGENTS = 12
MULTI = {"traces.mode": "multi", "traces.target_traces": AGENTS, "traces.max_parallel": AGENTS}


async def test_selections_at_once_all_fit(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    select = Traces.select

    async def seen(self: Traces, decision: SelectionDecision, *request: object) -> object:
        answers.append(await select(self, decision, *request))  # type: ignore[arg-type]  # passed on as they come
        return answers[-1]

    monkeypatch.setattr(Traces, "select", seen)
    await open_tag(client, policy=MULTI)

    selected = await asyncio.gather(
        *(told(client, "/api/trace/select", tag="mar11") for _ in range(AGENTS + 3))
    )

    assert sum(s["status"] == "selected" for s in selected) == AGENTS
    assert None not in answers
    assert len({s["trace_id"] for s in selected if s["status"] == "selected"}) == AGENTS
    assert (await told(client, "/api/trace/audit", tag="mar11"))["violations"] == []
