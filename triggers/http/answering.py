"""One call of a function over HTTP: who calls, once for an idempotency key, for as long as the caller is let in."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic import BaseModel
from starlette.responses import Response

from functions.kernel.contract import Call, Command, Function, Http, Nothing, Picture, Text
from functions.kernel.contract import Response as FunctionResponse
from functions.kernel.invoke import check_role
from functions.kernel.process.lifecycle import Process
from functions.kernel.process.running import ended
from functions.kernel.rules.access import STRANGER
from state.answers import StoredAnswer
from state.errors import Conflict, Invalid, TooManyRequests, Unauthenticated, Unavailable
from state.quota import Quota, counting
from triggers.http.bodies import LoopTurns, asked
from triggers.http.exchange import Endpoint, Exchange
from triggers.http.hosts import url_of
from triggers.http.identity import LOOK_AGAIN_S, Visitor, check_no_visit, identify, still_admitted

log = logging.getLogger(__name__)

JSON = "application/json"
NEVER_FULL = frozenset(
    {
        *(
            "agent::announce",
            "event::ticket",
            "pool::announce",
            "swarm::register",
            "token::rotate",
            "token::sign_in",
        ),
        *("experiment::complete", "experiment::crash", "experiment::stop", "experiment::retract"),
        *("gpu::begin", "gpu::built", "gpu::renew", "gpu::stopped", "run::tick", "swarm::result"),
        *("pool::deregister", "pool::give_back", "pool::heartbeat", "pool::leave", "pool::next"),
        *("pool::register_gpu", "pool::release", "trace::close", "trace::release", "trace::renew"),
    }
)
"""Writes that a full quota does not refuse: they end or go on with what was begun, or have a limit of their own."""


_ETAG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')


class EncodedAnswer(NamedTuple):
    """A function's answer as it is sent."""

    body: bytes
    media_type: str = JSON
    is_empty: bool = False
    """Whether there is nothing to send; a text may have no characters."""
    is_replayed: bool = False
    """Whether the first call with this idempotency key got it."""


def endpoint(declared: Function[Any, Any], door: Http, turns: LoopTurns) -> Endpoint:
    """What answers requests at one route of one function."""

    async def answer(exchange: Exchange) -> Response:
        exchange.function = declared.name
        visitor = await _visitor(declared, exchange)
        request = await asked(declared, door, exchange, turns)
        client = exchange.client
        call = Call(
            caller=visitor.caller,
            proof=visitor.proof,
            invoker=exchange.process.invoker,
            request_id=exchange.request_id,
            idempotency_key=exchange.header("idempotency-key"),
            traceparent=exchange.traceparent,
            trigger="http",
            address=client.host if client else "",
            url=url_of(exchange.scope["scheme"], exchange.header("host") or ""),
        )
        answer = await answered(exchange.process, declared, request, call, turns)
        return _response(declared, door, exchange, answer)

    return answer


async def _visitor(declared: Function[Any, Any], exchange: Exchange) -> Visitor:
    """Who asks, found before the body is read.

    The caller of a function for anyone is found only if the function wants to know. Whoever may not call a public
    function as themselves calls it as a stranger.

    Raises:
        Unauthenticated, Forbidden, TooManyRequests: they may not.
    """
    if "anyone" in declared.roles:
        if not declared.knows_caller:
            return Visitor(STRANGER)
        return await identify(exchange, writes=declared.writes, strangers=True)
    if declared.is_public and exchange.process.settings.swarm_public_reads:
        visitor = await identify(exchange, writes=False, strangers=True)
        return visitor if declared.allows(visitor.caller.role) else Visitor(STRANGER)
    if declared.writes and exchange.method == "GET":
        check_no_visit(exchange)
    visitor = await identify(exchange, writes=declared.writes)
    check_role(declared, visitor.caller)
    return visitor


def _response(
    declared: Function[Any, Any], door: Http, exchange: Exchange, answer: EncodedAnswer
) -> Response:
    headers = {"Idempotent-Replayed": "true"} if answer.is_replayed else {}
    if answer.is_empty:
        return Response(status_code=204, headers=headers)
    if door.has_etag:
        headers["ETag"] = _etag_of(answer.body)
        if _is_held(headers["ETag"], exchange.header_lines("if-none-match")):
            return Response(status_code=304, headers=headers)
    status = 200 if declared.lane == "web" else 202
    return Response(answer.body, status_code=status, headers=headers, media_type=answer.media_type)


def _etag_of(body: bytes) -> str:
    """A strong ETag: equal bodies have equal ones."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _is_held(etag: str, if_none_match: Sequence[str]) -> bool:
    """Whether one of these If-None-Match headers names the answer, also as W/"..."; `*` names any."""
    return any(header.strip() == "*" or etag in _ETAG.findall(header) for header in if_none_match)


async def answered(
    process: Process, declared: Function[Any, Any], request: BaseModel, call: Call, turns: LoopTurns
) -> EncodedAnswer:
    """Call it, unless this idempotency key was answered before.

    Raises:
        Whatever the call raises. Unauthenticated: the caller's token ended while the call waited. Conflict, Invalid:
        the key was used by a call that is under way, or with another body.
    """
    with counting(_quota(process, declared, call)):
        asked_id = request.request_id if isinstance(request, Command) else None
        given = call.idempotency_key if call.idempotency_key is not None else asked_id
        if given is not None and declared.keeps_answer:
            return await _once(process, declared, request, call, given)
        calling = process.invoker.call(declared.name, request, call)
        answer = await (_while_admitted(process, call, calling) if declared.held_for else calling)
        return await turns.do(lambda: _written(answer), lambda written: len(written.body))


def can_be_refused(declared: Function[Any, Any]) -> bool:
    return declared.writes and declared.name not in NEVER_FULL


def _quota(process: Process, declared: Function[Any, Any], call: Call) -> Quota | None:
    """The caller's quota; None: operators and strangers. Without tokens an open lab has one for all."""
    if call.caller.may_do_all or call.caller == STRANGER:
        return None
    return Quota(call.caller.name, process.settings.stored_bytes_a_day, can_be_refused(declared))


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
    process: Process, declared: Function[Any, Any], request: BaseModel, call: Call, given: str
) -> EncodedAnswer:
    if not 1 <= len(given) <= 255:
        raise Invalid("an Idempotency-Key has 1 to 255 characters", hint="send a UUID")
    digest = hashlib.sha256(request.model_dump_json().encode()).hexdigest()
    given = call.scoped(given)
    match await process.answers.claim(declared.name, given, digest):
        case StoredAnswer() as first:
            return EncodedAnswer(first.body.encode(), is_empty=not first.body, is_replayed=True)
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
        answer = _written(await process.invoker.call(declared.name, request, call))
    except BaseException as problem:
        if isinstance(problem, Unavailable) and not problem.nothing_done:
            # what Redis did not answer may have happened: the functions' own idempotence tells a repeated request
            process.answers.forget_once_known(declared.name, given)
            raise
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


def _written(answer: BaseModel) -> EncodedAnswer:
    match answer:
        case Nothing():
            return EncodedAnswer(b"", is_empty=True)
        case Picture():
            return EncodedAnswer(answer.content, answer.media_type)
        case Text():
            return EncodedAnswer(answer.content.encode(), answer.media_type)
        case FunctionResponse():
            return EncodedAnswer(answer.as_json())
        case _:
            return EncodedAnswer(answer.model_dump_json().encode())
