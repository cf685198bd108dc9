"""Turns of agents that select at once, with and without naming a trace."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from state.selecting import SelectionDecision
from state.traces import Traces
from tests.labs import open_tag, registered, told

AGENTS = 12
MULTI = {"traces.mode": "multi", "traces.target_traces": AGENTS, "traces.max_parallel": AGENTS}


async def test_selections_asked_for_at_once_do_not_make_each_other_stale(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def grown(http: httpx.AsyncClient, **asked: str) -> str:
    """The trace of a selection whose experiment is finished."""
    selection = await told(http, "/api/trace/select", tag="mar11", **asked)
    name = await registered(http, selection_id=selection["selection_id"])
    await told(http, "/api/experiment/complete", experiment_id=name, val_bpb=1.0)
    return str(selection["trace_id"])


async def test_a_trace_that_callers_named_is_not_passed_over_until_the_others_have_caught_up(
    client: httpx.AsyncClient,
) -> None:
    policy = {"traces.mode": "multi", "traces.target_traces": 3, "traces.max_parallel": 4}
    await open_tag(client, policy=policy)
    roots = [await grown(client) for _ in range(3)]
    for _ in range(6):
        await grown(client, trace_id=roots[0])

    turns = [await grown(client) for _ in range(6)]

    assert turns == [roots[1], roots[2], roots[0]] * 2
