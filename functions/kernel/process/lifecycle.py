"""The life of a process that calls functions: open the lab, provide the stores, announce itself, close."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from functions.kernel.invoke import Invoker
from functions.kernel.lanes import Author
from functions.kernel.off_loop import Children, Drawings
from functions.kernel.process.alive import announced, process_name
from functions.kernel.process.meters import Meters
from functions.kernel.process.readiness import connected, until_ready
from functions.kernel.process.redaction import hide
from functions.kernel.process.running import ended
from functions.kernel.process.tracing import Tracing, exporting
from functions.kernel.table import chosen, table
from state.answers import Answers
from state.archive import PatchArchiving
from state.client import Lab
from state.dimensions import Dimensions, ProposedDimensions
from state.embedded import broker_url
from state.experiments import Experiments
from state.hypotheses import GraphSummaries, Hypotheses, Journal
from state.own import Own
from state.pool import Pool
from state.presence import Overviews, Presence, Tallies
from state.private import KEY_ROLES, KeyRole, made_key
from state.programs import Pipelines, Programs
from state.reports import Reports
from state.schedules import Schedules
from state.searches import Searches
from state.settings import Settings
from state.snapshots import Snapshots
from state.stream import Stream
from state.swarms import Swarms
from state.tags import Policies, Strategies, Tags
from state.tokens import CHANGES as TOKEN_CHANGES
from state.tokens import Tokens
from state.traces import Traces
from state.train_queue import PiQueue, TrainQueue
from state.trust import Certificates, Distillations, HiddenNumbers, Transfers
from state.wakeups import Wakeups
from state.webhooks import Receivers, Webhooks


@dataclass(frozen=True)
class Process:
    name: str
    settings: Settings
    lab: Lab
    invoker: Invoker
    stream: Stream
    answers: Answers
    presence: Presence
    wakeups: Wakeups
    meters: Meters
    tracing: Tracing
    schedules: Schedules
    tokens: Tokens
    author: Author | None = None
    """Writer for the lane `pi`, in its process."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the process is to end: who waits is sent away before the connection is cut."""


@asynccontextmanager
async def opened(
    kind: str,
    settings: Settings,
    *,
    functions: Collection[str] | None = None,
    author: Callable[[Lab, Meters], AbstractAsyncContextManager[Author | None]] | None = None,
    facts: Callable[[], Mapping[str, Any]] = dict,
) -> AsyncIterator[Process]:
    """Open the lab for a process of this kind. Waits for Redis, and announces the process until the end.

    It calls `functions` (default: all; a few are imported faster), with an `author` those of the lane `pi`. `facts`
    describes the process.
    """
    broker = broker_url(settings)
    hide(broker)
    async with connected(settings) as lab, AsyncExitStack() as stack:
        with (
            contextlib.closing(TrainQueue(settings.lab, broker, settings.redis_timeout_s)) as train_queue,
            contextlib.closing(PiQueue(settings.lab, broker, settings.redis_timeout_s)) as pi_queue,
        ):
            await until_ready(lab, settings)
            meters = Meters(kind)
            writing = await stack.enter_async_context(author(lab, meters)) if author else None
            process = _bound(kind, settings, lab, functions, [train_queue, pi_queue], meters, writing)

            hand_over = partial(process.meters.hand_over, Tallies(lab))
            listening = asyncio.create_task(process.wakeups.listen())
            try:
                with process.wakeups.types(None, *TOKEN_CHANGES, woken=process.tokens.changed):
                    async with announced(kind, settings, lab, facts=facts, hand_over=hand_over):
                        yield process
            finally:
                await ended(listening)
                await process.stream.close()
                await asyncio.to_thread(process.tracing.close)


def _bound(
    kind: str,
    settings: Settings,
    lab: Lab,
    functions: Collection[str] | None,
    opened_before: Sequence[object],
    meters: Meters,
    author: Author | None,
) -> Process:
    own: dict[KeyRole, str] = {}
    if kind == "web":
        own = {role: made_key(settings, role) for role in KEY_ROLES}
    answers, presence, stream, tokens = Answers(lab), Presence(lab), Stream(lab), Tokens(lab, own)
    schedules, wakeups = Schedules(lab), Wakeups(lab)
    stores: list[object] = [
        Tags(lab),
        Strategies(lab),
        Policies(lab),
        Experiments(lab),
        Certificates(lab),
        HiddenNumbers(lab),
        Distillations(lab),
        Transfers(lab),
        PatchArchiving(lab),
        Reports(lab),
        Tallies(lab),
        Searches(lab),
        Traces(lab),
        Dimensions(lab),
        ProposedDimensions(lab),
        Hypotheses(lab),
        Journal(lab),
        Programs(lab),
        GraphSummaries(lab),
        Pipelines(lab),
        Swarms(lab),
    ]
    stores += [
        Pool(lab),
        Snapshots(lab),
        Overviews(lab),
        Webhooks(lab),
        Receivers(private=settings.webhook_private),
    ]
    stores += [presence, stream, schedules, tokens, wakeups, settings, Own(lab)]
    stores += [Children(), Drawings(), *opened_before, *([] if author is None else [author])]
    tracing = exporting(process_name(kind))
    return Process(
        name=process_name(kind),
        settings=settings,
        lab=lab,
        invoker=Invoker(
            table() if functions is None else chosen(functions),
            stores,
            "web" if author is None else "pi",
            meters=meters,
            tracing=tracing,
        ),
        stream=stream,
        answers=answers,
        presence=presence,
        wakeups=wakeups,
        meters=meters,
        tracing=tracing,
        schedules=schedules,
        tokens=tokens,
        author=author,
    )
