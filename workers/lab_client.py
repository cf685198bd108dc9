"""Asks a lab over HTTP, for every kind of worker; and keeps results that it has not taken yet."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
from pydantic import BaseModel, SecretStr, ValidationError

from functions.kernel.process.alive import process_name
from functions.kernel.process.redaction import hide
from functions.kernel.process.remote import Remote, served
from functions.kernel.table import chosen
from state import traceparent
from state.errors import (
    BY_TITLE,
    Damaged,
    NightjarError,
    TooManyRequests,
    TooSlow,
    Unauthenticated,
    Unavailable,
)
from state.private import write_private
from state.settings import Settings
from workers.attempt.job import delivered
from workers.slot import Slot

TIMEOUT = httpx.Timeout(10.0, connect=10.0)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
HANDED_IN = ("experiment::complete", "experiment::crash", "gpu::stopped")
"""The functions that end a run."""

log = logging.getLogger(__name__)

T = TypeVar("T")
Call = Callable[[str, Mapping[str, Any]], Awaitable[T]]
"""Calls a function of the lab with a request."""


class RemoteLab:
    """One lab: `functions` of it by name, not the whole table. It follows no redirects, which would get the token."""

    def __init__(self, remote: Remote, functions: Collection[str], http: httpx.AsyncClient) -> None:
        self.remote = remote
        self._paths = {
            name: next(door.path for door in declared.doors if door.method == "POST")
            for name, declared in chosen(functions).items()
        }
        self._http = http

    def bear(self, token: SecretStr | None) -> None:
        """Send this token from now on."""
        self._http.headers.pop("Authorization", None)
        self._http.headers.update(bearing(token))

    async def call(
        self, function: str, request: Mapping[str, Any], *, timeout: httpx.Timeout = TIMEOUT
    ) -> dict[str, Any]:
        """The function's answer.

        Raises:
            Damaged: the worker does not call this function. NightjarError: the lab's own error, no answer, or a retry
                is asked.
        """
        path = self._paths.get(function)
        if path is None:
            raise Damaged(
                f"this worker does not call {function!r}", hint="another version of it may have kept this"
            )
        return self.told(await self.sent("POST", path, request, timeout=timeout))

    async def sent(
        self,
        method: str,
        path: str,
        request: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout = TIMEOUT,
    ) -> httpx.Response:
        """The response of a route, a refusal too. Raises Unavailable: there is none."""
        traced = {"traceparent": trace} if (trace := traceparent.current.get()) else {}
        try:
            return await self._http.request(
                method, path, json=request, headers={**traced, **(headers or {})}, timeout=timeout
            )
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            reason = str(problem) or type(problem).__name__
            raise Unavailable(
                f"no lab answers at {self.remote.url} ({reason})",
                hint="is it up, and is --url right?",
                retry_after=1.0,
            ) from problem

    def told(self, answer: httpx.Response) -> dict[str, Any]:
        """The body of a lab's answer. Raises NightjarError: a refusal. Unavailable: a retry may succeed."""
        try:
            body = answer.json()
        except ValueError:
            body = None
        if answer.is_success and isinstance(body, dict):
            return body
        said = body if isinstance(body, dict) else {}
        kind = BY_TITLE.get(str(said.get("title")))
        if kind is None:  # a proxy, or the page of a hotel's network
            raise Unavailable(
                f"what answers at {self.remote.url} is no lab of Nightjar ({answer.status_code})",
                hint="is --url right, and the network?",
                retry_after=1.0,
            )
        detail, hint = str(said.get("detail")), said.get("hint")
        if kind in (TooManyRequests, TooSlow) or answer.status_code >= 500:
            raise Unavailable(detail, hint=hint, retry_after=_later(said, answer))
        raise kind(detail, hint=hint, fields={"problem": said})


@asynccontextmanager
async def calling(remote: Remote, functions: Collection[str]) -> AsyncIterator[RemoteLab]:
    """An open connection to the lab."""
    async with httpx.AsyncClient(base_url=remote.url, headers=bearing(remote.token), timeout=TIMEOUT) as http:
        yield RemoteLab(remote, functions, http)


async def found(settings: Settings, *, remote: bool = False) -> Remote:
    """The lab that a worker with these settings serves, once it runs. Raises as `remote.served`."""

    async def looked() -> Remote:
        return served(settings, remote=remote)

    return await delivered(looked)


async def patiently(
    step: Callable[[], Awaitable[T]],
    stop: asyncio.Event,
    say: Callable[[str], None],
    passing: type[NightjarError] = Unavailable,
) -> T | None:
    """Retry a step after each `passing` error, not before its Retry-After; None once stopped."""
    pause_s = FIRST_PAUSE_S
    while not stop.is_set():
        try:
            return await step()
        except passing as problem:
            seconds = max(problem.retry_after or 0.0, pause_s)
            hint = f" ({problem.hint})" if problem.hint else ""
            say(f"{problem.detail}{hint}; asking again in {seconds:.0f} s")
        await until(stop, seconds)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return None


async def until(stop: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until stopped."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


def bearing(token: SecretStr | None) -> dict[str, str]:
    """The header with this token, which is hidden from logs from now on."""
    if token is None:
        return {}
    hide(token.get_secret_value())
    return {"Authorization": f"Bearer {token.get_secret_value()}"}


def _later(said: Mapping[str, Any], answer: httpx.Response) -> float:
    """Seconds after which to retry."""
    for seconds in (said.get("retry_after"), answer.headers.get("retry-after")):
        if seconds is not None:
            with suppress(TypeError, ValueError):  # a date
                return float(seconds)
    return 1.0


# -- Results on the worker's disk that a lab has not taken yet. They outlive the worker's processes.


def spool_of(slot: Slot, settings: Settings) -> Spool:
    """The results of a slot that the lab has not taken yet."""
    return Spool(settings.data_dir / "spool" / slot.gpu_id.replace(":", "-"))


class KeptResult(BaseModel):
    """Content of a result file."""

    function: str
    request: dict[str, Any]


class Spool:
    """A folder with a file for each result: the function that takes it, and the request.

    A result that is refused or cannot be read is deleted, or moved to the folder `aside`. A 401 refuses the worker:
    then the result stays.
    """

    def __init__(self, folder: Path, aside: Path | None = None) -> None:
        self.aside = aside
        self._folder = folder

    def keep(self, name: str, function: str, request: Mapping[str, Any]) -> Path:
        """Write a result to a file that exists whole or not at all."""
        kept = self._folder / f"{name}.json"
        self._folder.mkdir(parents=True, exist_ok=True)
        write_private(kept, json.dumps({"function": function, "request": dict(request)}, allow_nan=False))
        return kept

    def kept(self) -> Sequence[Path]:
        """The files that wait, oldest first."""
        return sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime)

    async def send_all(
        self, call: Call[T], tell: Callable[[str, Mapping[str, Any], T | NightjarError], None]
    ) -> None:
        """Send all that wait, and tell each one's name, request, and answer or refusal.

        Raises:
            Unavailable: the lab does not answer. Unauthenticated: it does not know the worker. The rest stays.
        """
        for kept in self.kept():
            tell(kept.stem, *await self._sent(kept, call))

    async def send(self, kept: Path, call: Call[T]) -> T:
        """Send one. Raises as `send_all`, and NightjarError: refused."""
        _, answer = await self._sent(kept, call)
        if isinstance(answer, NightjarError):
            raise answer
        return answer

    async def _sent(self, kept: Path, call: Call[T]) -> tuple[Mapping[str, Any], T | NightjarError]:
        request: Mapping[str, Any] = {}
        answer: T | NightjarError
        try:
            result = await asyncio.to_thread(read_result, kept)
            request = result.request
            answer = await call(result.function, request)
        except (Unavailable, Unauthenticated):
            raise
        except NightjarError as problem:
            answer = problem
            if self.aside is not None:
                self.aside.mkdir(exist_ok=True)
                await asyncio.to_thread(kept.replace, self.aside / kept.name)
        await asyncio.to_thread(kept.unlink, missing_ok=True)
        return request, answer


def read_result(kept: Path) -> KeptResult:
    """Content of a result file. Raises Damaged: it is no result."""
    try:
        return KeptResult.model_validate_json(kept.read_bytes())
    except ValidationError as problem:
        error = problem.errors()[0]
        where = ".".join(map(str, error["loc"])) or "its text"
        raise Damaged(f"{kept.name} holds no result ({where}: {error['msg']})") from problem


async def announce(lab: RemoteLab, kind: Literal["keeper", "supervisor"], **facts: Any) -> None:
    """Show this process in the lab's list of processes for a minute."""
    try:
        await lab.call("pool::announce", {"process": process_name(kind), **facts})
    except Unavailable:
        raise
    except NightjarError as problem:  # it works all the same
        log.warning("this process is not shown in the lab: %s", problem.detail)
