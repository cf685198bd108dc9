"""How simulated workers reach the server: requests are repeated until answered, and each is timed and traced."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Self, TextIO

import httpx

from state.errors import Unavailable
from triggers.cli.lab_http import is_here

PATIENCE_S = 180.0
"""Seconds for which an unanswered request is repeated; a restarting server is back before."""
TIMEOUT = httpx.Timeout(30.0)
BACKOFF_S = (0.05, 2.0)
"""Seconds before a request without an answer is repeated: at first, and at most."""
LATER = frozenset({429, 502, 503, 504})
"""Statuses that ask to come again."""


class Refused(Exception):
    """An answer that no repeat makes better."""

    def __init__(self, call: str, status: int, text: str, *, is_repeat: bool) -> None:
        super().__init__(f"{call}: {status} {text[:300]}")
        self.status = status
        self.is_repeat = is_repeat
        """Whether the request was sent before, without an answer: the server may have done what it asks."""


@dataclass
class Meter:
    """What went over the wire."""

    times: dict[str, list[float]] = field(default_factory=dict)
    """Seconds until each answer by call, from when the request was due."""
    answers: int = 0
    thrown_away: int = 0
    """Answers that were lost on purpose."""
    unanswered: int = 0
    """Requests that failed on their way, or were asked to come again; all were repeated."""

    def percentile(self, call: str, percent: float) -> float | None:
        """This percentile of a call's times in seconds; None where there are none."""
        ordered = sorted(self.times.get(call, ()))
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else None


class Wire:
    """One server, shared by all simulated workers."""

    def __init__(
        self, url: str, seed: str, *, losses: float = 0.0, most_at_once: int = 64, trace: TextIO | None = None
    ) -> None:
        self.meter = Meter()
        self._chance = Random(f"{seed}/wire")
        self._losses = losses
        self._trace = trace
        self._clients = clients(url, most_at_once)
        self._idle: asyncio.LifoQueue[httpx.AsyncClient] = asyncio.LifoQueue()
        for client in self._clients:
            self._idle.put_nowait(client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        await asyncio.gather(*(client.aclose() for client in self._clients))

    async def ask(
        self,
        call: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        due: float | None = None,
        is_kept: bool = False,
    ) -> Any:
        """The answer of one call, which is repeated until there is one; `due` is when it had to be sent.

        Time on the loop's clock. An answer of a call that `is_kept` is never thrown away.

        Raises:
            Refused: the answer is a refusal. Unavailable: no answer for three minutes.
        """
        clock = asyncio.get_running_loop().time
        due = clock() if due is None else due
        give_up, wait_s, is_repeat = clock() + PATIENCE_S, BACKOFF_S[0], False
        while True:
            sent = await self._sent(call, method, path, body, token, due)
            if isinstance(sent, httpx.Response) and sent.status_code not in LATER:
                if sent.is_error:
                    raise Refused(call, sent.status_code, sent.text, is_repeat=is_repeat)
                if is_kept or self._chance.random() >= self._losses:
                    return None if sent.status_code == httpx.codes.NOT_MODIFIED else sent.json()
                self.meter.thrown_away += 1
            else:
                self.meter.unanswered += 1
                if clock() > give_up:
                    raise Unavailable(f"{call}: no answer for {PATIENCE_S:.0f} s", hint="is the server up?")
                await asyncio.sleep(_retry_after(sent) or wait_s)
                wait_s = min(2 * wait_s, BACKOFF_S[1])
            due, is_repeat = clock(), True

    async def _sent(
        self, call: str, method: str, path: str, body: Mapping[str, Any] | None, token: str | None, due: float
    ) -> httpx.Response | httpx.TransportError:
        """One request on the wire."""
        clock = asyncio.get_running_loop().time
        headers = {} if token is None else {"X-Worker-Token": token}
        answer: httpx.Response | httpx.TransportError
        client = await self._idle.get()
        begun = clock()
        try:
            answer = await client.request(method, path, json=body, headers=headers)
        except httpx.TransportError as problem:
            answer = problem
        finally:
            self._idle.put_nowait(client)
        took, status = clock() - due, None
        if isinstance(answer, httpx.Response):
            status = answer.status_code
            self.meter.answers += 1
            self.meter.times.setdefault(call, []).append(took)
        self._write(call, method, path, status, took, begun - due)
        return answer

    def _write(
        self, call: str, method: str, path: str, status: int | None, took: float, waited: float
    ) -> None:
        """One line of the trace."""
        if self._trace is not None:
            row = {
                "at": time.time(),
                "call": call,
                "method": method,
                "path": path,
                "status": status,
                "ms": round(took * 1e3, 3),
                "sent_late_ms": round(waited * 1e3, 3),
            }
            self._trace.write(f"{json.dumps(row)}\n")


def clients(url: str, count: int) -> list[httpx.AsyncClient]:
    """Clients of one connection each; the pool of a single client looks at all its connections at every request."""
    by_proxy = not is_here(url)
    tls = httpx.create_ssl_context(trust_env=by_proxy)
    limits = httpx.Limits(max_connections=1)
    return [
        httpx.AsyncClient(base_url=url, timeout=TIMEOUT, limits=limits, trust_env=by_proxy, verify=tls)
        for _ in range(count)
    ]


def _retry_after(answer: httpx.Response | httpx.TransportError) -> float | None:
    """Seconds after which a refusal asks to come again; None where it does not say."""
    if not isinstance(answer, httpx.Response):
        return None
    said = answer.headers.get("retry-after", "")
    return float(said) if said.isdigit() else None
