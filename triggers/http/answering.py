"""One call of a function for a caller from outside: once for an idempotency key, while its caller is let in."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from functions.contract import Call, Command, Function, Nothing, Picture, Response, Text
from functions.process.lifecycle import Process
from functions.process.running import ended
from functions.rules.access import STRANGER
from state.answers import Stored
from state.errors import Conflict, Invalid, TooManyRequests, Unauthenticated, Unavailable
from state.quota import Quota, counting
from triggers.http.identity import LOOK_AGAIN_S, still_admitted
from triggers.http.turns import Turns

log = logging.getLogger(__name__)

JSON = "application/json"
NEVER_FULL = frozenset(
    {
        *("agent::announce", "event::ticket", "swarm::register", "token::rotate", "token::sign_in"),
        *("experiment::complete", "experiment::crash", "experiment::stop", "experiment::retract"),
        *("gpu::begin", "gpu::built", "gpu::renew", "gpu::stopped", "run::tick", "swarm::result"),
        *("pool::deregister", "pool::give_back", "pool::heartbeat", "pool::leave", "pool::next"),
        *("pool::register_gpu", "pool::release", "trace::close", "trace::release", "trace::renew"),
    }
)
"""Writes that a full quota does not refuse: they end or go on with what was begun, or have a limit of their own."""


@dataclass(frozen=True)
class Answer:
    """A function's answer as it is sent."""

    body: bytes
    media_type: str = JSON
    is_empty: bool = False
    """Whether there is nothing to send; a text may have no characters."""
    is_replayed: bool = False
    """Whether the first call with this idempotency key got it."""


async def answered(
    process: Process, declared: Function[Any, Any], asked: BaseModel, call: Call, turns: Turns
) -> Answer:
    """Call it, unless this idempotency key was answered before.

    Raises:
        Whatever the call raises. Unauthenticated: the caller's token ended while the call waited. Conflict, Invalid:
        the key was used by a call that is under way, or with another body.
    """
    with counting(_quota(process, declared, call)):
        return await _answered(process, declared, asked, call, turns)


def can_be_refused(declared: Function[Any, Any]) -> bool:
    """Whether a full quota refuses this function."""
    return declared.writes and declared.name not in NEVER_FULL


def _quota(process: Process, declared: Function[Any, Any], call: Call) -> Quota | None:
    """The quota of the caller; None for operators and strangers. Callers without a token share one in an open lab.

    A function that lets strangers in counts what they store by what they show.
    """
    if call.caller.may_do_all or call.caller == STRANGER:
        return None
    return Quota(call.caller.name, process.settings.stored_bytes_a_day, can_be_refused(declared))


async def _answered(
    process: Process, declared: Function[Any, Any], asked: BaseModel, call: Call, turns: Turns
) -> Answer:
    asked_id = asked.request_id if isinstance(asked, Command) else None
    given = call.idempotency_key if call.idempotency_key is not None else asked_id
    if given is not None and declared.keeps_answer:
        return await _once(process, declared, asked, call, given)
    calling = process.invoker.call(declared.name, asked, call)
    answer = await (_while_admitted(process, call, calling) if declared.held_for else calling)
    return await turns.do(lambda: _written(answer), lambda written: len(written.body))


async def _while_admitted(process: Process, call: Call, calling: Coroutine[Any, Any, BaseModel]) -> BaseModel:
    """The answer of a call that may wait; a caller whose token ends meanwhile is sent away without one.

    Raises:
        Unauthenticated: that happened. Unavailable: this process ends. Whatever the call raises.
    """
    task = asyncio.ensure_future(calling)
    try:
        while not (await asyncio.wait([task], timeout=LOOK_AGAIN_S))[0]:
            if process.stopping.is_set():
                raise Unavailable("this web process ends", hint="ask again in a moment", retry_after=1.0)
            with suppress(Unavailable):
                if call.proof not in await still_admitted(process.tokens, [call.proof]):
                    raise Unauthenticated(
                        "the token was revoked meanwhile", hint="ask an operator for a new one"
                    )
        return task.result()
    finally:
        await ended(task)


async def _once(
    process: Process, declared: Function[Any, Any], asked: BaseModel, call: Call, given: str
) -> Answer:
    """Do it, unless this idempotency key was answered before."""
    if not 1 <= len(given) <= 255:
        raise Invalid("an Idempotency-Key has 1 to 255 characters", hint="send a UUID")
    digest = hashlib.sha256(asked.model_dump_json().encode()).hexdigest()
    given = call.scoped(given)
    match await process.answers.claim(declared.name, given, digest):
        case Stored() as first:
            return Answer(first.body.encode(), is_empty=not first.body, is_replayed=True)
        case "in_flight":
            raise Conflict(
                "the first request with this Idempotency-Key is still being answered",
                hint="repeat it in a moment: it will get the first answer",
                retry_after=1.0,
            )
        case "other_body":
            raise Invalid(
                "this Idempotency-Key was used with another body", hint="use a new key for a new request"
            )
        case "claimed":
            pass
    working = asyncio.create_task(process.answers.keep_in_flight(declared.name, given))
    try:
        answer = _written(await process.invoker.call(declared.name, asked, call))
    except BaseException as problem:
        if isinstance(problem, Unavailable) and not problem.nothing_done:
            raise  # what Redis did not answer may have happened: only the functions' own idempotence can tell
        with suppress(Unavailable):
            await process.answers.forget(declared.name, given)
        raise
    finally:
        await ended(working)
    try:
        await process.answers.store(declared.name, given, digest, answer.body.decode())
    except (Unavailable, TooManyRequests) as problem:
        # it was done: a repeated request is answered by the function's own idempotence
        log.warning("the answer of %s to a keyed request is not kept: %s", declared.name, problem.detail)
        with suppress(Unavailable):
            await process.answers.forget(declared.name, given)
    return answer


def _written(answer: BaseModel) -> Answer:
    match answer:
        case Nothing():
            return Answer(b"", is_empty=True)
        case Picture():
            return Answer(answer.content, answer.media_type)
        case Text():
            return Answer(answer.content.encode(), answer.media_type)
        case Response():
            return Answer(answer.as_json())
        case _:
            return Answer(answer.model_dump_json().encode())
